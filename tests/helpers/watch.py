"""A registry's watch without its signs of life."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from federation.ports import Registry, RegistryEvent, WatchAlive


async def changes(registry: Registry) -> AsyncGenerator[RegistryEvent, None]:
    """Yield what the registry tells."""
    watch: Any = registry.watch()
    async with aclosing(watch):
        async for event in watch:
            if not isinstance(event, WatchAlive):
                yield event
