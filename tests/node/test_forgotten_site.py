"""A site is forgotten only when each session has had one owner for a while: that one has written a checkpoint."""

from __future__ import annotations

from node.machines.forgotten_site import OWNED_MS, OwnersStay
from waypost.identity import Epoch, Ownership, ProxyId, SessionId

S, T = SessionId("s"), SessionId("t")


def owned(proxy: str, epoch: int) -> Ownership:
    return Ownership(proxy=ProxyId(proxy), epoch=Epoch(epoch))


def test_a_session_that_moves_is_waited_for_from_its_last_move_on() -> None:
    owners = OwnersStay({S: owned("a", 1), T: owned("a", 4)}, 0)
    assert not owners.look({S: owned("a", 1), T: owned("a", 4)}, OWNED_MS - 1)
    moved = {S: owned("b", 2), T: owned("a", 4)}
    assert not owners.look(moved, OWNED_MS)
    assert owners.waiting == [S]
    assert not owners.look(moved, 2 * OWNED_MS - 1)
    assert owners.look(moved, 2 * OWNED_MS)


def test_a_session_that_stayed_once_may_move_on_and_a_new_one_is_not_waited_for() -> None:
    owners = OwnersStay({S: owned("a", 1)}, 0)
    assert owners.look({S: owned("a", 1)}, OWNED_MS)
    assert owners.look({S: owned("b", 2), T: owned("b", 1)}, OWNED_MS)


def test_the_same_owner_at_another_epoch_has_taken_it_anew() -> None:
    owners = OwnersStay({S: owned("a", 1)}, 0)
    assert not owners.look({S: owned("a", 2)}, OWNED_MS)
    assert owners.look({S: owned("a", 2)}, 2 * OWNED_MS)


def test_nothing_is_waited_for_where_there_are_no_sessions_or_they_end() -> None:
    assert OwnersStay({}, 0).look({}, 0)
    assert OwnersStay({S: owned("a", 1)}, 0).look({}, 1)
