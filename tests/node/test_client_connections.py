"""How many clients may be connected, and from where."""

from __future__ import annotations

from node.shell.client_connections import ClientConnections, Connection


def connection(address: str) -> Connection:
    return Connection(address, lambda message: None, lambda reason: None, lambda: 0)


def test_connections_are_bounded_and_those_from_one_address_too() -> None:
    connections = ClientConnections(bound=3, bound_per_address=2)
    first = connections.add(connection("h"))
    connections.add(connection("h"))
    assert connections.refusal("h") == "too many clients from this address"
    assert connections.refusal("g") == ""
    connections.add(connection("g"))
    assert connections.refusal("g") == "too many clients"
    connections.remove(first)
    connections.remove(first)
    assert connections.refusal("h") == "" == connections.refusal("g")
    assert connections.get(first) is None


def test_no_number_is_given_twice() -> None:
    connections = ClientConnections(bound=9, bound_per_address=0)
    first = connections.add(connection("h"))
    connections.remove(first)
    assert connections.add(connection("h")) != first
    assert [each.address for each in connections] == ["h"]
