"""How far a propagated message goes, and with which header."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.gateway.propagate_messages import PropagateHeader
from node.gateway.propagation import ID, PATH, TTL, NotPassedOn, Policy, as_attributes
from waypost.limits import MAX_MESSAGE_TTL
from waypost.notification import Int64, Value

HERE, THERE = Policy(gateway="g", cost=1, ttl=7), Policy(gateway="h", cost=2, ttl=7)
ids = st.text("abgh", min_size=1, max_size=2)


def crossing(header: PropagateHeader, gateway: Policy) -> PropagateHeader:
    """What the header is on the other side of the federation."""
    return gateway.header_of(as_attributes(header), "A/0:1")


def test_each_gateway_takes_its_cost_and_stands_in_the_path() -> None:
    entered = HERE.incoming_header(PropagateHeader(ttl=4, id="m"), "p")
    assert entered == PropagateHeader(ttl=3, path=("p", "g"), id="m")
    assert THERE.outgoing_header(crossing(entered, THERE), "q") == PropagateHeader(ttl=1, path=("p", "g", "h"), id="m")
    # To another peer of the gateway by which it came, it costs no more.
    assert HERE.outgoing_header(crossing(entered, HERE), "q") == entered


def test_it_ends_where_its_time_to_live_does() -> None:
    assert HERE.incoming_header(PropagateHeader(ttl=0), "p") == NotPassedOn.TTL_ENDED
    entered = HERE.incoming_header(PropagateHeader(ttl=2), "p")
    assert isinstance(entered, PropagateHeader)
    assert THERE.outgoing_header(crossing(entered, THERE), "q") == NotPassedOn.TTL_ENDED
    last = PropagateHeader(ttl=9, path=tuple(f"p{n}" for n in range(MAX_MESSAGE_TTL - 1)))
    assert HERE.incoming_header(last, "p") == NotPassedOn.TTL_ENDED


def test_it_does_not_come_back() -> None:
    assert HERE.incoming_header(PropagateHeader(ttl=4, path=("g",)), "p") == NotPassedOn.LOOP
    entered = HERE.incoming_header(PropagateHeader(ttl=4, path=("q",)), "p")
    assert isinstance(entered, PropagateHeader)
    assert entered.path == ("q", "p", "g")
    for peer in ("p", "q"):
        assert THERE.outgoing_header(crossing(entered, THERE), peer) == NotPassedOn.LOOP


def test_what_no_gateway_has_published_begins_at_the_one_that_passes_it_on() -> None:
    forged: list[dict[str, Value]] = [{}, {TTL: 4}, {TTL: 4, PATH: ""}, {TTL: "4", PATH: "g"}]
    forged.append({TTL: 4, PATH: "a\na"})
    forged.append({TTL: Int64(2**40), PATH: "g"})
    for attributes in forged:
        header = HERE.header_of(attributes, "A/0:1")
        assert header == PropagateHeader(ttl=7, id="A/0:1")
        assert HERE.outgoing_header(header, "p") == PropagateHeader(ttl=6, path=("g",), id="A/0:1")


@given(
    st.dictionaries(st.sampled_from((TTL, PATH, ID)), st.one_of(st.integers(-1, 300), st.text(), st.binary())),
    st.sampled_from((HERE, THERE)),
)
def test_whatever_the_attributes_are_the_header_can_be_said(attributes: dict[str, Value], policy: Policy) -> None:
    header = policy.header_of(attributes, "A/0:1")
    assert 0 <= header.ttl <= MAX_MESSAGE_TTL
    assert policy.header_of(as_attributes(header), "A/0:1") == header or not header.path


@given(
    st.integers(0, 12), st.lists(ids, max_size=3, unique=True), st.lists(st.tuples(ids, st.integers(1, 4)), max_size=12)
)
def test_a_message_passes_no_peer_twice_and_no_more_than_its_time_to_live(
    ttl: int, path: list[str], gateways: list[tuple[str, int]]
) -> None:
    """Gateways pass it on to each other as peers: a message that goes on has paid for each, and visits each once."""
    header, spent = PropagateHeader(ttl=ttl, path=tuple(path)), 0
    for name, cost in gateways:
        entered = Policy(gateway=name, cost=cost, ttl=7).incoming_header(header, "p")
        if isinstance(entered, NotPassedOn):
            assert (entered is NotPassedOn.LOOP) == (name in header.path) or ttl - spent < cost
            break
        spent += cost
        header = entered
        assert header.ttl == ttl - spent >= 0
        assert len(set(header.path)) == len(header.path)
