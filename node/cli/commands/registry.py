"""The registry, as commands ask it that need no proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from federation.ports import Registry, Reloaded
from node.configuration.config import NodeConfig
from node.startup.backends import open_registry, registry_file
from waypost.errors import NotFound, RegistryUnavailable


@asynccontextmanager
async def registry_of(config: NodeConfig) -> AsyncIterator[Registry]:
    """Return a context with the registry that the configuration names, started; it is closed at the end of the block.

    Raises:
        BadConfiguration: a TLS file of the configuration cannot be used.
        NotFound: there is no registry where the configuration says.
        RegistryUnavailable: the registry does not answer.
    """
    if not config.etcd and not registry_file(config).exists():
        raise NotFound(f"there is no registry {registry_file(config)}", field="data", hint="name the folder of a proxy")
    registry = open_registry(config)
    try:
        await registry.start()
        yield registry
    finally:
        await registry.close()


async def all_rows(registry: Registry) -> Reloaded:
    """Return all rows that the watch reports, as they are now.

    Args:
        registry: started.

    Raises:
        RegistryUnavailable: the registry does not answer.
    """
    async with aclosing(registry.watch()) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Reloaded):
                return event
    raise RegistryUnavailable("the registry has told nothing")
