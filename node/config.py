"""Everything that a node can be told: flags over environment (WAYPOST_...) over a TOML file over defaults."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from waypost.errors import BadConfiguration
from waypost.limits import MAX_ID_LENGTH


class NodeConfig(BaseSettings):
    """One proxy's configuration."""

    model_config = SettingsConfigDict(env_prefix="WAYPOST_", extra="forbid", frozen=True)

    name: str = Field(
        "a", min_length=1, max_length=MAX_ID_LENGTH, description="name of this proxy, unique in the federation"
    )
    site: str = Field(
        "A", min_length=1, max_length=MAX_ID_LENGTH, description="the site whose log this proxy reads and writes"
    )
    neighbours: tuple[str, ...] = Field((), description="sites to exchange notifications with, by links")
    data: Path = Field(Path("run"), description="folder for everything embedded, and for this proxy's own store")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(0, ge=0, le=65535, description="port to listen on; 0: any free one")
    advertise: str = Field("", description="ws://host:port that others reach this proxy at; empty: where it listens")
    kafka: str = Field("", description="host:port of the site's Kafka; empty: the embedded log")
    etcd: str = Field("", description="host:port of etcd; empty: the embedded registry")
    prefix: str = Field("waypost", pattern=r"^[A-Za-z0-9._-]+$", description="of Kafka topics and etcd keys")
    lease_ttl_ms: int = Field(3_000, ge=500, description="how long this proxy is seen alive after its last renewal")
    durable: bool = Field(
        True, description="embedded log, registry and changelog survive a power cut, not only a crash"
    )
    discovery: bool = Field(True, description="announce this proxy on the local network by mDNS")

    @field_validator("neighbours", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(each for each in value.split(",") if each) if isinstance(value, str) else value

    @field_validator("name", "site")
    @classmethod
    def _plain(cls, value: str) -> str:
        if "/" in value or any(each.isspace() for each in value):
            raise ValueError("no slash and no blank, please")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)


def load_config(flags: dict[str, Any], file: Path | None) -> NodeConfig:
    """Return the configuration.

    Raises:
        BadConfiguration: names the field, and where the value comes from.
    """
    from_file = _read(file) if file else {}
    given = {key: value for key, value in flags.items() if value is not None}
    try:
        environment = NodeConfig.model_validate({}).model_dump(exclude_unset=True)
        return NodeConfig(**(from_file | environment | given))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        name = str(first["loc"][0]) if first["loc"] else ""
        source = "flag" if name in given else f"file {file}" if name in from_file else f"WAYPOST_{name.upper()}"
        raise BadConfiguration(f"{first['msg']} (from {source})", field=field) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise BadConfiguration(f"{file}: {error.strerror}", field="config") from None
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{file}: {error}", field="config") from None
