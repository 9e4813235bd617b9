"""The settings of a node: flags over environment (WAYPOST_...) over a TOML file over defaults.

:class:`NodeConfig` is the only place that lists the settings. The flags of `waypost serve` are made from it, and so
is the model by which pydantic validates values from outside. Neither pydantic nor its settings are imported before
there is a value to validate: `waypost serve --help` must not wait for them.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
from urllib.parse import urlsplit

from federation.journal_segments import Rotation
from node.configuration.wording import wording
from waypost.errors import BadConfiguration, Refused
from waypost.limits import (
    JOURNAL_SEGMENT,
    LEAST_MEMORY,
    MATCH_MS_PROXY,
    MAX_ID_LENGTH,
    MAX_STORED,
    MAX_STORED_BYTES,
    MEMORY_BYTES,
)
from waypost.reliability import DEGREES, reliability_of

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

PREFIX = "WAYPOST_"
OTHER_VARIABLES = ("WAYPOST_PARTS", "WAYPOST_KEY", "WAYPOST_CERT", "WAYPOST_CA", "WAYPOST_PROXY", "WAYPOST_TOKEN")
"""Variables whose names are nearly those of settings, and that mean something else."""
HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
OF_A_SERVICE = re.compile(r".*_(SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)")
"""Variables that Kubernetes sets for services, of the name waypost-etcd for example."""
FILE_NAME_BYTES = 200
TOPIC_LENGTH = 249
"""Characters of the name of a topic of Kafka."""
SHORTEST_ETCD_LEASE_MS = 2_000
"""etcd makes shorter ones longer; the proxy would count on one that never comes, and never be ready."""


def _setting(default: Any, say: str, check: Callable[[str], Any] | None = None, **bounds: Any) -> Any:
    """Return a setting.

    Args:
        say: its text in `--help`.
        check: parses text from outside; raises ValueError.
        bounds: of pydantic's Field.
    """
    return field(default=default, metadata={"help": say, "check": check, "bounds": bounds})


def plain_name(name: str) -> str:
    """Return the name as it is. Raises ValueError: it cannot name a row, a topic and a folder; the message says why."""
    if not name:
        raise ValueError("it is empty: say a name")
    if "/" in name or any(character.isspace() for character in name):
        raise ValueError(f"{name!r} is no name: a name has no slash and no blank")
    if not name.isprintable():
        raise ValueError("no control character, please")
    if name.startswith(".") or any(character in name for character in '"[],;'):
        raise ValueError(
            f"{name!r} is no name: none begins with a dot, or has quotes, brackets, commas or semicolons in it"
        )
    if len(name.encode()) > FILE_NAME_BYTES:
        raise ValueError(f"at most {FILE_NAME_BYTES} bytes, please: it is the name of a folder")
    return name


def _folder(name: str) -> str:
    if not name.strip():
        raise ValueError("no folder is named; . is the one where the command runs")
    return name


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the items of a text that is separated by commas, or of a list, without blanks around them.

    Raises ValueError: an item is empty, or no text.
    """
    if not all(isinstance(item, str) for item in value):
        raise ValueError("a list of names, please")
    listed = tuple(item.strip() for item in (value.split(",") if isinstance(value, str) else value))
    if not any(listed):
        return ()
    if not all(listed):
        raise ValueError(f"a comma too many in {value!r}: write {','.join(filter(None, listed))}")
    return listed


def _repeated(names: Sequence[str]) -> str:
    """Return the first name that stands there a second time; "": none does."""
    return next((name for number, name in enumerate(names) if name in names[:number]), "")


def _sites(value: str | Sequence[str]) -> tuple[str, ...]:
    """Raises ValueError: one is no name of a site."""
    return tuple(map(plain_name, _listed(value)))


def _rotation(text: str) -> str:
    """Return the text. Raises ValueError: it is no size or age at which a part of a journal ends."""
    Rotation.parse(text)
    return text


def _names(principals: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names. Raises ValueError: there are none, or one is too long or a star."""
    named = _listed(principals)
    if not named:
        raise ValueError("nobody is named; leave it out, and everybody may")
    if "*" in named:
        raise ValueError("'*' does not mean everybody here: name the principals")
    if (together := next((name for name in named if ";" in name), None)) is not None:
        raise ValueError(f"{together!r}: names are separated by commas")
    if repeated := _repeated(named):
        raise ValueError(f"{repeated} is named twice")
    if max(map(len, named)) > MAX_ID_LENGTH:
        raise ValueError(f"a name has at most {MAX_ID_LENGTH} characters")
    return named


def _is_host(name: str) -> bool:
    from ipaddress import ip_address

    if ":" not in name and not re.fullmatch(r"[0-9.]+", name):
        return len(name) < 254 and all(map(HOST_LABEL.fullmatch, name.removesuffix(".").split(".")))
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host(name: str) -> str:
    """Raises ValueError: it is no host name or address; "" is every address."""
    if name and not _is_host(name):
        raise ValueError(f"{name!r} is no host name or address; the port goes with --port")
    return name


def _hosts(names: str) -> tuple[str, ...]:
    """Raises ValueError: one is no host name or address."""
    hosts = _listed(names)
    for host in hosts:
        if not _is_host(host):
            raise ValueError(f"{host!r} is no host name or address; leave out scheme and port")
    return hosts


def _origins(origins: str) -> tuple[str, ...]:
    """Return web origins as a browser writes them. Raises ValueError: one is none."""
    return tuple(map(_origin, _listed(origins)))


def _origin(origin: str) -> str:
    if origin == "null":
        raise ValueError("null is the origin of any sandboxed page and of none in particular")
    try:
        parts = urlsplit(origin)
        is_one = parts.scheme and parts.hostname and parts.port != 0 and origin == f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        is_one = False
    if not is_one or not _is_host(parts.hostname or "") or "@" in origin or origin.endswith(":"):
        raise ValueError(f"{origin!r} is not https://host or https://host:port")
    return origin.lower()


def _bytes(text: str) -> int:
    """Return the bytes of a size such as 512MiB. Raises ValueError: it is no size."""
    number, unit = text.strip(), 1
    for name, size in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if number.endswith(name):
            number, unit = number.removesuffix(name).strip(), size
    if not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is no number of bytes; write it as 2GiB, 512MiB or 1073741824")
    return int(number) * unit


def _degree(name: str) -> str:
    if name not in DEGREES:
        raise ValueError(f"{name!r} is neither {' nor '.join(DEGREES)}")
    return name


def reachable(url: str) -> str:
    """Return a proxy's address, or "", as it is. Raises ValueError: it is not ws://HOST:PORT or wss://HOST:PORT."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("ws", "wss") and parts.hostname and parts.port and "@" not in parts.netloc
        is_one = is_one and _is_host(parts.hostname or "") and url.lower() == f"{parts.scheme}://{parts.netloc.lower()}"
    except ValueError:
        is_one = False
    if url and not is_one:
        raise ValueError(f"{url!r} is no address of a proxy; it is written as ws://host:7301")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One proxy's configuration; each field is a setting, and its help text says what it means."""

    name: str = _setting(
        "a", "Name of this proxy, unique in the federation.", plain_name, min_length=1, max_length=MAX_ID_LENGTH
    )
    site: str = _setting(
        "A", "Site whose log this proxy reads and writes.", plain_name, min_length=1, max_length=MAX_ID_LENGTH
    )
    neighbours: tuple[str, ...] = _setting(
        (), "Sites to exchange with, by links that are added to the registry; separated by commas.", _sites
    )
    data: Path = _setting(Path("run"), "Folder for everything embedded, and for this proxy's own store.", _folder)
    host: str = _setting("127.0.0.1", "Address to listen on.", _host)
    port: int = _setting(0, "Port to listen on; 0: any free one.", ge=0, le=65535)
    advertise: str = _setting("", "ws://host:port that others reach it at; else where it listens.", reachable)
    host_names: tuple[str, ...] = _setting(
        (), "Other host names under which it is reached, beside --host and --advertise; separated by commas.", _hosts
    )
    allow_origins: tuple[str, ...] = _setting(
        (), "Origins of web pages that may use this proxy, as https://host; separated by commas; else none.", _origins
    )
    insecure: bool = _setting(False, "Listen beyond loopback although nothing protects this proxy.")
    tls_cert: str = _setting("", "PEM file of this proxy's certificate; with it, its port speaks TLS and nothing else.")
    tls_key: str = _setting("", "PEM file of the certificate's key.")
    tls_ca: str = _setting("", "PEM file of the authorities that certify the proxies of this federation.")
    backend_ca: str = _setting(
        "", "PEM file of the authorities that certify Kafka and etcd; with it both are spoken to over TLS."
    )
    backend_cert: str = _setting("", "PEM file of the certificate that this proxy shows them, where they ask for one.")
    backend_key: str = _setting("", "PEM file of that certificate's key.")
    publishers: tuple[str, ...] = _setting(
        (), "Principals that may publish here, by token or certificate; default: everybody.", _names
    )
    operators: tuple[str, ...] = _setting(
        (), "Principals that may use the pages for operators, by token; default: everybody.", _names
    )
    events: str = _setting(
        "persistent",
        "persistent or best-effort: the highest reliability of events that sessions get here; the same at all proxies.",
        _degree,
    )
    connection: str = _setting(
        "persistent",
        "persistent or best-effort: the highest reliability of receivers' connections here; the same at all proxies.",
        _degree,
    )
    max_stored: int = _setting(
        0, "What one session may store, in notifications; the oldest go; 0: no bound.", ge=0, le=MAX_STORED
    )
    max_stored_bytes: int = _setting(0, "Bytes of the same; 0: no bound.", ge=0, le=MAX_STORED_BYTES)
    max_connections: int = _setting(10_000, "Clients that may be connected at one time; others are sent away.", ge=1)
    max_connections_per_address: int = _setting(0, "The most connections from one address; 0: no bound.", ge=0)
    max_sessions: int = _setting(200_000, "Sessions that this proxy may own; no other is made here.", ge=1)
    match_ms: int = _setting(
        MATCH_MS_PROXY,
        "Milliseconds that the largest notification may take, by estimate, to be matched with all subscriptions here; "
        "others are refused; 0: no bound, for no client either.",
        ge=0,
    )
    memory: int = _setting(
        MEMORY_BYTES,
        "What this proxy may take of memory, as 2GiB, 512MiB or bytes; what it keeps for clients has parts of it.",
        _bytes,
        ge=LEAST_MEMORY,
        le=1 << 50,
    )
    publish_rate: int = _setting(50_000, "Notifications a second that one client may publish; 0: no bound.", ge=0)
    change_rate: int = _setting(
        500, "Attaches, subscriptions and other changes a second that one client may ask for; 0: no bound.", ge=0
    )
    address_change_rate: int = _setting(
        1_000, "The same of all clients at one address together, after ten seconds' worth at once; 0: no bound.", ge=0
    )
    kafka: str = _setting("", "host:port of the site's Kafka; else the embedded log.")
    replication: int = _setting(
        0, "Replicas of the topics; 0: as many as the cluster has brokers, at most 3.", ge=0, le=32_767
    )
    min_insync: int = _setting(
        0, "Replicas that must have what is appended; 0: one less than there are, at least 1.", ge=0, le=32_767
    )
    etcd: str = _setting("", "host:port of etcd; else the embedded registry.")
    mixed_backends: bool = _setting(False, "Allow Kafka with the embedded registry, or etcd with an embedded log.")
    etcd_compact_s: int = _setting(
        300,
        "Seconds for which etcd keeps what its rows were before, of all its keys; 0: it is not asked to forget.",
        ge=0,
    )
    prefix: str = _setting("waypost", "Of Kafka topics and etcd keys.", pattern=r"^[A-Za-z0-9._-]+$", max_length=100)
    lease_ttl_ms: int = _setting(3_000, "How long a silent proxy counts as alive.", ge=1_000, le=3_600_000)
    replace: bool = _setting(
        False,
        "Take the name from a process that runs under it in another folder; that one ends. Give it by hand, once.",
    )
    sweep_s: int = _setting(60, "Seconds between two sweeps for entries past their time to live.", ge=1, le=86_400)
    journal_rotate: str = _setting(
        JOURNAL_SEGMENT,
        "When the next part of the journal begins: a size like 256MiB, an age like 7d, or off. Nothing is removed.",
        _rotation,
    )
    durable: bool = _setting(True, "Embedded parts survive a power cut, not only a crash.")
    discovery: bool = _setting(True, "Announce this proxy on the local network by mDNS.")


def load_config(flags: dict[str, Any], file: Path | None) -> NodeConfig:
    """Return the configuration, of each setting the value of the first source that names it: `flags`, the environment's
    variable WAYPOST_SETTING, `file`, the default.

    Args:
        flags: setting -> its value on the command line; None: it was not given there.
        file: a TOML file; None: there is none.

    Raises:
        BadConfiguration: the file cannot be read, a value is not allowed, or two do not go together; `field` names the
            setting, and the message says where the value comes from.
    """
    from pydantic import ValidationError

    given_flags = {key: value for key, value in flags.items() if value is not None}
    model = _model(_read(file) if file else {})
    try:
        config = NodeConfig(**model(**given_flags).model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(str(part) for part in first["loc"]) or None
        name = str(first["loc"][0]) if first["loc"] else ""
        source = sources_of(flags, file).get(name, f"file {file}")
        source = f"--{name.replace('_', '-')}" if source == "flag" else source
        raise BadConfiguration(f"{wording(first)} (from {source})", field=field_name) from None
    if not config.advertise and is_unspecified(config.host):
        raise BadConfiguration(
            f"{config.host or 'every address'} is no address that others can reach; "
            "say with --advertise ws://ADDRESS:PORT which one is, and give --port",
            field="advertise",
        )
    if is_unspecified(urlsplit(config.advertise).hostname):
        raise BadConfiguration(f"{config.advertise} is no address that others can reach", field="advertise")
    try:
        reliability_of(config.events, config.connection)
    except Refused as error:
        raise BadConfiguration(error.message, field=error.field) from None
    if config.tls_cert and config.advertise.startswith("ws:"):
        raise BadConfiguration(
            f"{config.advertise}: a proxy with a certificate is reached at wss://", field="advertise"
        )
    if config.site in config.neighbours:
        raise BadConfiguration(f"{config.site} is the site of this proxy itself", field="neighbours")
    _check_backend_tls(config)
    _check_exposure(config)
    _check_replication(config)
    return config


def load_serving(flags: dict[str, Any], file: Path | None) -> NodeConfig:
    """Return the configuration of a proxy that is to serve, with more checks than :func:`load_config` makes.

    Commands that only need a part of a proxy's configuration use :func:`load_config`.

    Args:
        flags: setting -> its value on the command line; None: it was not given there.
        file: a TOML file; None: there is none.

    Raises:
        BadConfiguration: as :func:`load_config`; or no proxy could serve with this configuration.
    """
    config = load_config(flags, file)
    _check_variables()
    _check_mixed_backends(config)
    if (config.tls_key or config.tls_ca) and not config.tls_cert:
        raise BadConfiguration("it is missing; with a key or authorities alone nothing is encrypted", field="tls_cert")
    if config.tls_cert and not config.tls_key:
        raise BadConfiguration("it is missing; a certificate and its key go together", field="tls_key")
    if config.etcd and config.lease_ttl_ms < SHORTEST_ETCD_LEASE_MS:
        raise BadConfiguration(
            f"{config.lease_ttl_ms} ms is shorter than etcd's shortest lease, {SHORTEST_ETCD_LEASE_MS} ms",
            field="lease_ttl_ms",
        )
    if repeated := _repeated(config.neighbours):
        raise BadConfiguration(f"{repeated} is named twice", field="neighbours")
    if config.max_connections_per_address > config.max_connections:
        raise BadConfiguration(
            f"{config.max_connections_per_address} are more than --max-connections, {config.max_connections}, lets in",
            field="max_connections_per_address",
        )
    for name in ("kafka", "etcd"):
        _check_addresses(name, getattr(config, name))
    if config.kafka:
        _check_topics(config)
    return config


def _check_variables() -> None:
    """Raises BadConfiguration: a variable of the environment is nearly the name of a setting."""
    names = [f"{PREFIX}{setting.name.upper()}" for setting in fields(NodeConfig)]
    for variable in map(str.upper, os.environ):
        if variable.startswith(PREFIX) and variable not in {*names, *OTHER_VARIABLES}:
            similar = get_close_matches(variable, names, 1, 0.85) or [
                name for name in names if variable.startswith(f"{name}_") and not OF_A_SERVICE.fullmatch(variable)
            ]
            if similar:
                raise BadConfiguration(f"there is no variable {variable}; do you mean {similar[0]}?", field=variable)


def _check_mixed_backends(config: NodeConfig) -> None:
    if config.mixed_backends or bool(config.kafka) == bool(config.etcd):
        return
    if config.kafka:
        present, missing, embedded = "kafka", "etcd", "a registry in its own folder: it would find no other proxy"
    else:
        present, missing, embedded = "etcd", "kafka", "a log in its own folder: another machine's proxy has another log"
    raise BadConfiguration(
        f"without it the proxy would have --{present}, and {embedded}; if that is meant: --mixed-backends",
        field=missing,
    )


def _check_addresses(field: str, addresses: str) -> None:
    """Raises BadConfiguration: what is said of Kafka or etcd is not host:port, several with commas between."""
    for address in addresses.split(",") if addresses else ():
        host, _, port = address.strip().removeprefix("http://" if field == "etcd" else "").rpartition(":")
        bare = host[1:-1] if re.fullmatch(r"\[.*:.*\]", host) else host
        if (
            not _is_host(bare)
            or (bare == host and ":" in host)
            or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536)
        ):
            tls = "; write it without https://, and --backend-ca asks for TLS" if "https://" in address else ""
            raise BadConfiguration(f"{address!r} is not host:port{tls}", field=field)


def _check_topics(config: NodeConfig) -> None:
    """Raises BadConfiguration: Kafka has no topics of such names; its rule is 249 letters, digits, dots, _ and -."""
    if re.fullmatch(r"[A-Za-z0-9._-]+", config.site) is None:
        raise BadConfiguration(
            f"{config.site!r} goes into the names of Kafka's topics: letters, digits, dots, _ and - only", field="site"
        )
    if len(longest := f"{config.prefix}.{config.site}.changelog") > TOPIC_LENGTH:
        raise BadConfiguration(
            f"topic {longest[:40]}... would have {len(longest)} characters; Kafka allows {TOPIC_LENGTH}", field="site"
        )


def _check_replication(config: NodeConfig) -> None:
    """Raises BadConfiguration: what is said of Kafka's replicas cannot be."""
    for name, value in (("replication", config.replication), ("min_insync", config.min_insync)):
        if value and not config.kafka:
            raise BadConfiguration(f"{value} is of Kafka's topics; name Kafka with --kafka", field=name)
    if config.replication and config.min_insync > config.replication:
        raise BadConfiguration(
            f"{config.min_insync} is more than --replication {config.replication}: the topics would take no record",
            field="min_insync",
        )


def _check_backend_tls(config: NodeConfig) -> None:
    """Raises BadConfiguration: what is said of TLS towards Kafka and etcd lacks something."""
    if config.backend_cert and not config.backend_key:
        raise BadConfiguration(
            f"{config.backend_cert} is of no use without its key; name the file", field="backend_key"
        )
    if config.backend_key and not config.backend_cert:
        raise BadConfiguration(
            f"{config.backend_key} is the key of no certificate; name its file", field="backend_cert"
        )
    if config.backend_cert and not config.backend_ca:
        raise BadConfiguration(
            f"{config.backend_cert} is shown over TLS only; name the file of who certifies Kafka and etcd",
            field="backend_ca",
        )
    if config.backend_ca and not (config.kafka or config.etcd):
        raise BadConfiguration(
            f"{config.backend_ca} is for TLS to Kafka and etcd; name them with --kafka and --etcd", field="backend_ca"
        )
    if config.backend_ca and "http://" in config.etcd:
        raise BadConfiguration(
            f"{config.etcd!r} is not encrypted, and --backend-ca asks for TLS; leave out http://", field="etcd"
        )


def _check_exposure(config: NodeConfig) -> None:
    """Raises BadConfiguration: anybody on the network could use the proxy, and nobody said that this is meant."""
    from waypost.client.address import is_loopback

    protected = config.tls_cert or config.publishers or config.operators
    if is_loopback(config.host) or protected or config.insecure:
        return
    raise BadConfiguration(
        f"anybody who reaches {config.host or 'an address of this machine'} could publish, and use the pages for "
        "operators; say --tls-cert, --publishers or --operators, or --insecure if this is meant",
        field="host",
    )


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_unspecified(host: str | None) -> bool:
    """Tell whether a host stands for every address of this machine; "" does, and None, no host, does not."""
    from ipaddress import ip_address

    if not host:
        return host == ""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def sources_of(flags: dict[str, Any], file: Path | None) -> dict[str, str]:
    """Return setting -> the source of its value: "flag", the variable's name, "file NAME" or "default".

    Args:
        flags: setting -> its value on the command line; None: it was not given there.
        file: a TOML file; None: there is none.

    Raises:
        BadConfiguration: the file cannot be read, or has a setting that there is not.
    """
    in_file = _read(file) if file else {}
    variables = {name.upper() for name in os.environ}

    def source(name: str) -> str:
        if flags.get(name) is not None:
            return "flag"
        if f"{PREFIX}{name.upper()}" in variables:
            return f"{PREFIX}{name.upper()}"
        return f"file {file}" if name in in_file else "default"

    return {setting.name: source(setting.name) for setting in fields(NodeConfig)}


def _model(from_file: dict[str, Any]) -> type[BaseSettings]:
    """Return pydantic's model of the settings, which reads the environment, and `from_file` below it."""
    from pydantic import BeforeValidator, Field, create_model
    from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

    class Sources(BaseSettings):
        # Not decoded: a list is separated by commas in the environment too, and is not JSON.
        model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", enable_decoding=False)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    kinds = get_type_hints(NodeConfig)
    settings: dict[str, Any] = {}
    for setting in fields(NodeConfig):
        kind = kinds[setting.name]
        check = BeforeValidator(partial(_checked, setting.metadata["check"], is_flag=kind is bool))
        settings[setting.name] = (Annotated[kind, check], Field(setting.default, **setting.metadata["bounds"]))
    return create_model("NodeSettings", __base__=Sources, **settings)


def _checked(check: Callable[[Any], Any] | None, value: Any, *, is_flag: bool) -> Any:
    if isinstance(value, bool) and not is_flag:
        # pydantic would take it for 1 or 0.
        raise ValueError(f"{str(value).lower()} is no value of it")
    return check(value) if check is not None and isinstance(value, str | list) else value


def _named(values: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return a file's values by the names of settings, which may have dashes in the file as flags do.

    Raises BadConfiguration: there is no such setting, or it has two values.
    """
    names = [setting.name for setting in fields(NodeConfig)]
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name in found:
            raise BadConfiguration(f"it is said twice (from file {file})", field=key)
        if name not in names:
            similar = get_close_matches(name, names, 1)
            hint = f"do you mean {similar[0]}?" if similar else "waypost config check shows those there are"
            if isinstance(value, dict):
                hint = "settings stand in no table of the file"
            raise BadConfiguration(f"there is no such setting; {hint} (from file {file})", field=key)
        found[name] = value
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return _named(tomllib.loads(file.read_text(encoding="utf-8")), file)
    except OSError as error:
        raise BadConfiguration(f"{file}: {error.strerror}", field="config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{file}: {error}", field="config") from None
