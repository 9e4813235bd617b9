"""A site is forgotten only when each session has had one owner for a while: that one has written a checkpoint."""

from __future__ import annotations

from node.machines.forgotten_site import OWNED_MS, OwnershipStability
from waypost.identity import Epoch, Ownership, ProxyId, SessionId

S, T = SessionId("s"), SessionId("t")
LIVE = {ProxyId("a"), ProxyId("b")}


def owned(proxy: str, epoch: int) -> Ownership:
    return Ownership(proxy=ProxyId(proxy), epoch=Epoch(epoch))


def test_a_session_that_moves_is_waited_for_from_its_last_move_on() -> None:
    owners = OwnershipStability({S: owned("a", 1), T: owned("a", 4)}, 0)
    assert not owners.look({S: owned("a", 1), T: owned("a", 4)}, LIVE, OWNED_MS - 1)
    moved = {S: owned("b", 2), T: owned("a", 4)}
    assert not owners.look(moved, LIVE, OWNED_MS)
    assert owners.waiting == [S]
    assert not owners.look(moved, LIVE, 2 * OWNED_MS - 1)
    assert owners.look(moved, LIVE, 2 * OWNED_MS)


def test_a_session_that_stayed_once_may_move_on_and_a_new_one_is_not_waited_for() -> None:
    owners = OwnershipStability({S: owned("a", 1)}, 0)
    assert owners.look({S: owned("a", 1)}, LIVE, OWNED_MS)
    assert owners.look({S: owned("b", 2), T: owned("b", 1)}, LIVE, OWNED_MS)


def test_the_same_owner_at_another_epoch_has_taken_it_anew() -> None:
    owners = OwnershipStability({S: owned("a", 1)}, 0)
    assert not owners.look({S: owned("a", 2)}, LIVE, OWNED_MS)
    assert owners.look({S: owned("a", 2)}, LIVE, 2 * OWNED_MS)


def test_nothing_is_waited_for_where_there_are_no_sessions_or_they_end() -> None:
    assert OwnershipStability({}, 0).look({}, LIVE, 0)
    assert OwnershipStability({S: owned("a", 1)}, 0).look({}, LIVE, 1)


def test_a_session_whose_owner_has_no_lease_is_unserved_and_the_site_is_kept() -> None:
    owners = OwnershipStability({S: owned("a", 1), T: owned("dead", 1)}, 0)
    assert not owners.look({S: owned("a", 1), T: owned("dead", 1)}, LIVE, OWNED_MS)
    assert owners.unserved == [T]
    assert owners.look({S: owned("a", 1), T: owned("b", 2)}, LIVE, OWNED_MS)
    assert owners.unserved == []
