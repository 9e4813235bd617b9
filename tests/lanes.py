"""How tests are shared out among workers (`pytest -n`): a pytest plugin, named in pyproject's `addopts`.

The tests of a file run in one worker, one after the other, as each worker has servers of its own. All tests of Spark
run in one: a second worker would start a second JVM, and two of them take longer than one.

An example of Hypothesis has no deadline: it would count the time of the other workers.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SPARK = "tests/spark/"

settings.register_profile("side by side", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("side by side")


def group_of(nodeid: str) -> str:
    """Return the group of a test, by its id: the tests of a group run in one worker."""
    return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out one group after the other, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    """Use this scheduler whenever there are workers."""
    config.option.loadscopereorder = False
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the largest group first: whoever began it last would be late."""
    items.sort(key=lambda item: group_of(item.nodeid) != SPARK)


def pytest_collection_finish() -> None:
    """Exempt all that was imported and collected from garbage collection: it stays, and is much."""
    gc.collect()
    gc.freeze()
