"""How a client stays connected: the pure connector, input by input."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from waypost.checksum import checksum
from waypost.client.connector import (
    PASSING_MS,
    WAIT_HERE_MS,
    Close,
    Connector,
    ConnectorState,
    Find,
    Found,
    Lost,
    MoveTo,
    Open,
    Opened,
    Received,
    Report,
    SendPending,
    Start,
    Stop,
)
from waypost.client.events import Refusal, Retry, WrongFederation
from waypost.client.protocol import ClientProtocol
from waypost.clock import NEVER
from waypost.errors import BadConfiguration
from waypost.identity import Epoch, Incarnation, Origin, ProxyId, SessionId, SiteId, SubscriptionId
from waypost.messages import (
    VERSION,
    AboutSession,
    Attach,
    Attached,
    Deliver,
    Delivery,
    Hello,
    Moved,
    Problem,
    ProxyAddress,
    Wait,
    WaitCause,
    Welcome,
)

HERE, THERE = "ws://here:1", "ws://there:1"
SESSION = SessionId("s")


def connector(*addresses: str) -> tuple[Connector, ClientProtocol]:
    protocol = ClientProtocol("c", SESSION, "r")
    return Connector(protocol, addresses, random.Random(0)), protocol


def proxies(*addresses: str) -> list[ProxyAddress]:
    return [ProxyAddress(url=url) for url in addresses]


def attached() -> Received:
    return Received(
        Attached(session=SESSION, epoch=Epoch(1), proxy=ProxyId("a"), site=SiteId("A"), subscriptions={}, stored=0)
    )


def connected(*addresses: str) -> tuple[Connector, ClientProtocol]:
    made, protocol = connector(*addresses)
    assert made.step(Start(), 0) == [Open(addresses[0])]
    assert made.step(Opened(), 1) == [SendPending()]
    made.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")), 2)
    protocol.take_messages()
    return made, protocol


def pause_of(effects: Sequence[object]) -> int:
    (report,) = effects
    assert isinstance(report, Report) and isinstance(report.event, Retry)
    return report.event.after_ms


def test_a_connection_begins_with_a_hello_and_asks_for_the_session() -> None:
    made, protocol = connector(HERE)
    made.step(Start(), 0)
    made.step(Opened(), 1)
    assert [type(message) for message in protocol.take_messages()] == [Hello, Attach]


WRONG = BadConfiguration("the proxy's certificate is not accepted", field="WAYPOST_CA")


def until_refused(made: Connector, now_ms: int, *lost: Lost) -> int:
    """Let connections be lost in this way, in turn, until the client ends by it; return when."""
    for each in itertools.cycle(lost):
        (report,) = made.step(each, now_ms)
        assert isinstance(report, Report)
        if report == Report(Refusal(WRONG)):
            return now_ms
        assert isinstance(report.event, Retry) and now_ms < 200_000
        now_ms += report.event.after_ms
        assert isinstance(made.tick(now_ms)[0], Open)
    raise AssertionError


@pytest.mark.parametrize("addresses", [(HERE,), (HERE, THERE)])
def test_a_configuration_with_which_no_address_is_of_use_ends_the_client_in_seconds(addresses: tuple[str, ...]) -> None:
    made, _ = connector(*addresses)
    made.step(Start(), 0)
    took_ms = until_refused(made, 10, Lost("here", WRONG))
    assert PASSING_MS <= took_ms < 3 * PASSING_MS + 2_000


def test_an_address_that_may_be_of_use_later_is_tried_on() -> None:
    """One that was of no use, and is refused since, may be a proxy that starts with another certificate."""
    made, _ = connector(HERE, THERE)
    made.step(Start(), 0)
    now_ms = 0
    for lost in [Lost("here", WRONG), Lost("refused")] * 4:
        now_ms += pause_of(made.step(lost, now_ms))
        assert isinstance(made.tick(now_ms)[0], Open)
    until_refused(made, now_ms, Lost("here", WRONG))


def test_a_proxy_that_was_found_and_is_of_no_use_is_looked_for_again() -> None:
    made, _ = connector()
    assert made.step(Start(), 0) == [Find()]
    assert made.step(Found(proxies(HERE)), 1) == [Open(HERE)]
    pause_of(made.step(Lost("here", WRONG), 2))
    assert made.tick(made.next_deadline()) == [Find()]


def test_a_move_during_a_handshake_that_fails_is_followed() -> None:
    made, _ = connector(HERE)
    made.step(Start(), 0)
    assert made.step(MoveTo(THERE), 1) == [Close()]
    assert made.step(Lost("here", WRONG), 2) == [Open(THERE)]


def test_a_client_that_was_connected_once_does_not_end_by_a_certificate_that_has_ended_since() -> None:
    made, _ = connected(HERE)
    pause_of(made.step(Lost("closed"), 10))
    made.tick(made.next_deadline())
    pause_of(made.step(Lost("here", WRONG), made.next_deadline()))


def test_a_connection_that_is_lost_is_followed_by_one_to_the_next_address_after_a_pause() -> None:
    made, _ = connector(HERE, THERE)
    made.step(Start(), 0)
    wait_ms = pause_of(made.step(Lost("refused"), 10))
    assert made.trouble == ": refused"
    assert made.next_deadline() == 10 + wait_ms
    assert made.tick(9 + wait_ms) == []
    assert made.tick(10 + wait_ms) == [Open(THERE)]


def test_a_connection_on_which_we_were_let_in_is_followed_by_one_to_the_same_proxy_first() -> None:
    made, _ = connected(HERE, THERE)
    made.step(attached(), 5)
    made.step(Lost("broken"), 10)
    assert made.tick(made.next_deadline()) == [Open(HERE)]
    made.step(Lost("refused"), 500)
    assert made.tick(made.next_deadline()) == [Open(THERE)]


def test_pauses_grow_until_we_are_let_in() -> None:
    made, _ = connector(HERE)
    made.step(Start(), 0)
    waits, now = [], 0
    for _ in range(40):
        waits.append(pause_of(made.step(Lost("refused"), now)))
        now = made.next_deadline()
        made.tick(now)
    assert max(waits[:2]) <= 200 and max(waits) > 2_000 and max(waits) <= 5_000
    made.step(Opened(), now)
    made.step(attached(), now)
    assert pause_of(made.step(Lost("broken"), now)) <= 100


def test_connector_without_an_address_discovers_proxies() -> None:
    made, _ = connector()
    assert made.step(Start(), 0) == [Find()]
    pause_of(made.step(Lost("no proxy is known"), 5))
    assert made.tick(made.next_deadline()) == [Find()]
    assert made.step(Found(proxies(HERE, THERE)), 900) == [Open(THERE)]


def test_moved_client_connects_to_the_new_owner_without_a_pause() -> None:
    made, _ = connected(HERE)
    effects = made.step(Received(Moved(SESSION, ProxyId("b"), THERE)), 5)
    assert effects[0] == Close() and effects[-1] == SendPending()
    assert made.step(Lost("closed"), 6) == [Open(THERE)]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("wss://proxy.example:7301", "ws://proxy.example:7302"),
        ("ws://proxy.example:7301", "ws://127.1:7302"),
        ("ws://proxy.example:7301", "ws://0.0.0.0:7302"),
        ("ws://proxy.example:7301", "ws://[::ffff:127.0.0.1]:7302"),
        ("ws://proxy.example:7301", "http://proxy.example:7302"),
    ],
)
def test_client_does_not_follow_a_redirect_out_of_tls_or_to_its_own_machine(here: str, there: str) -> None:
    made, _ = connected(here)
    effects = made.step(Received(Moved(SESSION, ProxyId("b"), there)), 5)
    assert isinstance(effects[0], Close)
    pause_of(made.step(Lost("closed"), 6))
    assert there in made.trouble
    assert made.tick(made.next_deadline()) == [Open(here)]


def test_an_application_that_moves_while_the_connector_pauses_does_not_wait() -> None:
    made, _ = connector(HERE)
    made.step(Start(), 0)
    made.step(Lost("refused"), 1)
    assert made.step(MoveTo(THERE), 2) == [Open(THERE)]
    assert made.next_deadline() == NEVER


def test_waiting_client_attaches_again_on_its_connection_after_growing_pauses() -> None:
    made, protocol = connected(HERE)
    pauses = []
    for _ in range(30):
        made.step(Received(Wait(WaitCause.MOVED, "not yet", 20)), 1_000)
        assert protocol.take_messages() == []
        pauses.append(made.next_deadline() - 1_000)
        assert made.tick(made.next_deadline()) == [SendPending()]
        assert [type(message) for message in protocol.take_messages()] == [Attach]
    assert min(pauses) >= 20 and max(pauses) > 500 and max(pauses) <= 2_000


def test_pending_retry_of_a_connection_ends_with_the_connection() -> None:
    made, _ = connected(HERE)
    made.step(Received(Wait(WaitCause.MOVED, "not yet", 300)), 1_000)
    made.step(Lost("broken"), 1_001)
    assert made.tick(made.next_deadline()) == [Open(HERE)]
    assert made.next_deadline() == NEVER


@pytest.mark.parametrize("phase", ["opening", "connected", "pausing"])
def test_stopped_connector_opens_no_connection(phase: str) -> None:
    made, _ = connector(HERE)
    made.step(Start(), 0)
    if phase == "connected":
        made.step(Opened(), 1)
    if phase == "pausing":
        made.step(Lost("refused"), 1)
    assert made.step(Stop(), 2) == ([] if phase == "pausing" else [Close()])
    assert made.step(Opened(), 3) == [Close()]
    assert made.step(Lost("closed"), 4) == []
    assert (made.state, made.next_deadline()) == (ConnectorState.STOPPED, NEVER)
    assert made.step(Start(), 5) == [Open(HERE)]


def test_a_connection_that_opens_too_late_is_closed() -> None:
    made, _ = connector(HERE)
    made.step(Start(), 0)
    assert made.step(MoveTo(THERE), 1) == [Close()]
    assert made.step(Opened(), 2) == [Close()]
    assert made.step(Lost("closed"), 3) == [Open(THERE)]


def waiting(made: Connector, cause: WaitCause, pause_ms: int, for_ms: int) -> list[object]:
    """Have the proxy say again and again, for so long, that the session is not served; return the last effects."""
    effects: list[object] = []
    for now_ms in range(0, for_ms + 1, pause_ms):
        effects = [*made.step(Received(Wait(cause, "not now", 250)), now_ms)]
        made.tick(made.next_deadline())
    return effects


@pytest.mark.parametrize("pause_ms", [500, 2_500], ids=["quick answers", "answers of a silent registry"])
def test_a_client_whose_proxy_never_gets_the_session_goes_to_the_next_address(pause_ms: int) -> None:
    made, _ = connected(HERE, THERE)
    made.step(attached(), 5)
    assert Close() not in waiting(made, WaitCause.UNAVAILABLE, pause_ms, WAIT_HERE_MS - pause_ms)
    assert Close() in made.step(Received(Wait(WaitCause.UNAVAILABLE, "not now", 250)), WAIT_HERE_MS)
    made.step(Lost("closed"), 50_000)
    assert made.tick(made.next_deadline()) == [Open(THERE)]


def test_time_in_vain_is_counted_anew_at_another_address() -> None:
    made, _ = connected(HERE, THERE)
    waiting(made, WaitCause.UNAVAILABLE, 500, WAIT_HERE_MS - 500)
    made.step(Lost("closed"), WAIT_HERE_MS)
    assert made.tick(made.next_deadline()) == [Open(THERE)]
    made.step(Opened(), WAIT_HERE_MS + 1_000)
    assert Close() not in made.step(Received(Wait(WaitCause.UNAVAILABLE, "not now", 250)), WAIT_HERE_MS + 1_001)


def test_a_client_stays_where_another_proxy_would_say_the_same_or_where_there_is_no_other() -> None:
    made, _ = connected(HERE, THERE)
    assert Close() not in waiting(made, WaitCause.RECEIVER_IN_USE, 500, 3 * WAIT_HERE_MS)
    made, _ = connected(HERE)
    assert Close() not in waiting(made, WaitCause.UNAVAILABLE, 500, 3 * WAIT_HERE_MS)


NOT_FOUND = Received(Problem("NOT_FOUND", "no such session", about=AboutSession(SESSION)))


def reconnected(federation: str) -> tuple[Connector, ClientProtocol]:
    """Return a client that was attached in federation f and has come to a proxy of `federation`."""
    made, protocol = connected(HERE, THERE)
    made.step(attached(), 3)
    for now_ms in (10, 20_000):
        pause_of(made.step(Lost("closed"), now_ms))
        (opening,) = made.tick(made.next_deadline())
    assert opening == Open(THERE)
    made.step(Opened(), 40_000)
    made.step(Received(Welcome(VERSION, ProxyId("x"), SiteId("X"), federation)), 40_001)
    protocol.take_messages()
    return made, protocol


@pytest.mark.parametrize("federation", ["f", ""])
def test_a_session_that_its_own_federation_does_not_have_was_deleted(federation: str) -> None:
    made, _ = reconnected(federation)
    reports = [effect.event for effect in made.step(NOT_FOUND, 40_002) if isinstance(effect, Report)]
    assert [type(event) for event in reports] == [Refusal]
    assert "deleted" in str(reports[0])


def test_a_session_that_another_federation_does_not_have_is_looked_for_elsewhere() -> None:
    made, protocol = reconnected("g")
    effects = made.step(NOT_FOUND, 40_002)
    assert Close() in effects and made.state is ConnectorState.CLOSING
    (event,) = (effect.event for effect in effects if isinstance(effect, Report))
    assert isinstance(event, WrongFederation) and "proxy x is of federation g" in event.reason
    (report,) = made.step(Lost("closed"), 40_003)
    assert isinstance(report, Report) and report.event == Retry(event.reason, made.next_deadline() - 40_003)
    assert made.trouble == f": {event.reason}"
    assert made.tick(made.next_deadline()) == [Open(HERE)]
    assert protocol.session == SESSION


def test_a_federation_that_has_the_session_is_its_federation() -> None:
    """A registry that was lost gives the federation another identity; its sessions are what they were."""
    made, _ = reconnected("g")
    made.step(attached(), 40_002)
    assert made.state is ConnectorState.CONNECTED
    effects = made.step(NOT_FOUND, 40_003)
    assert any(isinstance(effect, Report) and isinstance(effect.event, Refusal) for effect in effects)


def publishing() -> tuple[Connector, ClientProtocol]:
    """Return a producer that was connected to a proxy of federation f, and has come to the other address."""
    protocol = ClientProtocol("p", None)
    made = Connector(protocol, (HERE, THERE), random.Random(0))
    made.step(Start(), 0)
    made.step(Opened(), 1)
    (hello,) = protocol.take_messages()
    assert isinstance(hello, Hello) and hello.federation == ""
    made.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")), 2)
    for now_ms in (10, 20_000):
        pause_of(made.step(Lost("closed"), now_ms))
        made.tick(made.next_deadline())
    made.step(Opened(), 40_000)
    return made, protocol


def test_producer_names_its_federation_to_the_next_proxy_and_leaves_one_of_another() -> None:
    made, protocol = publishing()
    (hello,) = protocol.take_messages()
    assert isinstance(hello, Hello) and hello.federation == "f"
    effects = made.step(Received(Problem("ANOTHER_FEDERATION", "proxy x is of federation g", about=None)), 40_001)
    assert [effect.event for effect in effects if isinstance(effect, Report)] == [
        WrongFederation("proxy x is of federation g")
    ]
    assert Close() in effects
    pause_of(made.step(Lost("closed"), 40_002))
    assert made.tick(made.next_deadline()) == [Open(HERE)]


def test_receiver_names_no_federation() -> None:
    """Its session tells where it is; a federation whose registry was lost has another identity, and its sessions."""
    _, protocol = reconnected("f")
    protocol.disconnected()
    protocol.connected()
    hello = protocol.take_messages()[0]
    assert isinstance(hello, Hello) and hello.federation == ""


def test_a_client_asks_less_and_less_often_for_a_notification_that_is_damaged_where_it_is_stored() -> None:
    made, _ = connected(HERE)
    body = b"no body"
    entry = Delivery(
        origin=Origin("A/0"),
        offset=0,
        producer="p",
        incarnation=Incarnation("1"),
        sequence=1,
        at_ms=0,
        body=body,
        check=checksum(body) ^ 1,
    )
    damaged = Deliver(
        epoch=Epoch(1), through=1, matches=[(SubscriptionId("x"),)], matched=[0], entries=[entry], secure={}
    )
    now_ms, pauses = 10, []
    for _ in range(20):
        made.step(attached(), now_ms)
        assert isinstance(made.step(Received(damaged), now_ms)[0], Close)
        pauses.append(pause_of(made.step(Lost("closed"), now_ms)))
        now_ms += pauses[-1]
        made.tick(now_ms)
        made.step(Opened(), now_ms)
        made.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")), now_ms)
    assert sum(pauses[10:]) > 5 * sum(pauses[:5])
