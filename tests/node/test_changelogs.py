"""Changelogs of other sites: each is opened once, and none stays open."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from chaos.servers.kafka import KafkaServer
from federation.embedded.changelog import EmbeddedChangelog
from federation.kafka import KafkaChangelog
from federation.ports import Changelog
from node.peers import remote_changelogs
from node.peers.remote_changelogs import RemoteChangelogs
from node.startup.backends import open_changelog
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.errors import LogUnavailable, Unreachable
from waypost.identity import Epoch, SessionId, SiteId, new_incarnation


class Slow:
    """A changelog that takes its time to start."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.closed = 0

    async def start(self) -> None:
        self.begun.set()
        await self.go.wait()
        if self.fails:
            raise Unreachable("nobody there")

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        return (Checkpoint(session, Epoch(1), 1, Descriptor(), {}),)

    async def close(self) -> None:
        self.closed += 1


class Made:
    """What was opened, in order."""

    def __init__(self, *changelogs: Slow) -> None:
        self._left = list(changelogs)
        self.where: list[str] = []

    def __call__(self, locator: str) -> Any:
        self.where.append(locator)
        return self._left.pop(0)


async def found(changelogs: RemoteChangelogs, *sites: str) -> tuple[list[str], list[str]]:
    """Return of which sessions something was found, and the sites whose changelogs could not be read."""
    checkpoints, missing = await changelogs.latest(SessionId("s"), {SiteId(site): site for site in sites})
    return [checkpoint.session for checkpoint in checkpoints], [*missing]


async def test_concurrent_requests_open_a_changelog_once() -> None:
    slow = Slow()
    made = Made(slow)
    changelogs = RemoteChangelogs(made)
    asking = [asyncio.create_task(changelogs.at("B")) for _ in range(3)]
    await slow.begun.wait()
    slow.go.set()
    got: list[object] = [*await asyncio.gather(*asking)]
    assert got == [slow] * 3
    assert made.where == ["B"]
    await changelogs.close()
    assert slow.closed == 1


async def test_changelog_that_failed_to_open_is_opened_again_at_the_next_request() -> None:
    broken, sound = Slow(fails=True), Slow()
    changelogs = RemoteChangelogs(Made(broken, sound))
    broken.go.set()
    with pytest.raises(Unreachable):
        await changelogs.at("B")
    sound.go.set()
    got: object = await changelogs.at("B")
    assert got is sound
    await changelogs.close()
    assert (broken.closed, sound.closed) == (1, 1)


async def test_search_finds_checkpoints_in_readable_changelogs_and_names_the_unreadable_ones() -> None:
    sound, broken = Slow(), Slow(fails=True)
    changelogs = RemoteChangelogs(Made(sound, broken))
    sound.go.set()
    broken.go.set()
    assert await found(changelogs, "B", "C") == (["s"], ["C"])
    assert await found(changelogs, "B") == (["s"], [])
    await changelogs.close()


async def test_cancelled_request_does_not_cancel_the_opening_for_others() -> None:
    slow = Slow()
    changelogs = RemoteChangelogs(Made(slow))
    leaves, stays = (asyncio.create_task(changelogs.at("B")) for _ in range(2))
    await slow.begun.wait()
    leaves.cancel()
    slow.go.set()
    got: object = await stays
    assert got is slow
    await changelogs.close()
    assert slow.closed == 1


async def test_changelog_that_is_still_opening_is_not_awaited_at_close() -> None:
    slow = Slow()
    changelogs = RemoteChangelogs(Made(slow))
    asking = asyncio.create_task(changelogs.at("B"))
    await slow.begun.wait()
    await changelogs.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def of_another_site(tmp_path: Path) -> Changelog:
    return open_changelog(f"file:{tmp_path / 'changelog.db'}", None)


async def test_another_sites_changelog_that_is_not_there_is_not_made_and_is_no_empty_one(tmp_path: Path) -> None:
    changelog = of_another_site(tmp_path)
    with pytest.raises(LogUnavailable, match="there is no changelog"):
        await changelog.start()
    assert not files(tmp_path)
    await EmbeddedChangelog(tmp_path / "changelog.db").start()
    await of_another_site(tmp_path).start()


async def test_another_sites_topic_that_is_not_there_is_not_made(kafka: KafkaServer) -> None:
    name = f"{new_incarnation()}.changelog"
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="is missing: a broker answers"):
            await open_changelog(f"kafka:{kafka.bootstrap}/{name}", None).start()
    own = KafkaChangelog(kafka.bootstrap, name)
    await own.start()
    await own.close()
    changelog = open_changelog(f"kafka:{kafka.bootstrap}/{name}", None)
    await changelog.start()
    assert await changelog.latest(SessionId("s")) == ()
    await changelog.close()


async def test_changelog_that_fails_to_open_after_nobody_waits_any_more_is_no_unhandled_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, unhandled = Slow(fails=True), list[Any]()
    monkeypatch.setattr(remote_changelogs, "OPENING_MS", 1)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    changelogs = RemoteChangelogs(Made(slow))
    checkpoints, missing = await changelogs.latest(SessionId("s"), {SiteId("B"): "B"}, within_ms=1)
    assert (checkpoints, [*missing]) == ([], ["B"])
    slow.go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del changelogs
    gc.collect()
    assert unhandled == []
