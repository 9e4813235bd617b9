"""Which of the checkpoints that changelogs have a session goes on from."""

from __future__ import annotations

import pytest

from proxy.core.effects import FoundCheckpoint
from proxy.ownership.acquisition_answers import has_later_owner
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.identity import GENERATION, Epoch, Ownership, ProxyId, SessionId

ROW = Ownership(ProxyId("a1"), Epoch(3))
FIRST, OWNERS = 0, 5


def checkpoint(epoch: int, serial: int) -> Checkpoint:
    return Checkpoint(SessionId("s"), Epoch(epoch), serial, Descriptor(), {})


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([(3, OWNERS)], (3, OWNERS)),
        ([(2, OWNERS), (3, FIRST)], (3, FIRST)),
        # Another proxy tried to make the session above the row, and did not.
        ([(3, OWNERS), (4, FIRST)], (3, OWNERS)),
        # An owner has served above the row: the registry has gone back.
        ([(3, OWNERS), (4, OWNERS)], (4, OWNERS)),
        # Nothing of the owner's was ever accepted.
        ([(4, FIRST)], (4, FIRST)),
    ],
)
def test_a_first_checkpoint_above_the_row_hides_no_owners(
    known: list[tuple[int, int]], expected: tuple[int, int] | None
) -> None:
    found = FoundCheckpoint(tuple(checkpoint(*at) for at in known), complete=True).last_under(ROW)
    assert (found and (found.epoch, found.serial)) == expected


def test_what_a_changelog_has_of_a_deleted_session_hides_nothing_of_the_one_that_was_made_since() -> None:
    made = Ownership(ProxyId("a1"), Epoch(2 * GENERATION + 1))
    deleted, another = checkpoint(GENERATION + 1, OWNERS), checkpoint(3 * GENERATION + 1, FIRST)
    assert FoundCheckpoint((deleted, another), complete=True).last_under(made) == another
    assert FoundCheckpoint((deleted,), complete=True).last_under(made) == deleted


def test_a_first_checkpoint_above_the_row_is_of_no_owner() -> None:
    """Else the session would wait for an owner that there never was."""
    assert [has_later_owner(checkpoint(epoch, serial), ROW) for epoch in (3, 4) for serial in (FIRST, OWNERS)] == [
        False,
        False,
        False,
        True,
    ]
