"""What a gateway does with a propagated message: whether it goes on, and with which header. Pure.

A message crosses the federation as a notification that has its header in three attributes. The gateway that it enters
by is one peer of its path, and the gateway that it leaves by another one, unless they are the same. Each takes its cost
from the TTL, one or more, as its operator says (JXTA, "Propagate Service": a peer takes one at least).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from node.gateway.propagate_messages import PropagateHeader, is_id
from waypost.errors import BadMessage
from waypost.limits import MAX_MESSAGE_TTL
from waypost.notification import Value

TTL, PATH, ID = "Propagate-TTL", "Propagate-Path", "Propagate-ID"
RESERVED = (TTL, PATH, ID)
_BETWEEN = "\n"
"""Between the peers of a path in its attribute; no id of a peer has it."""


class NotPassedOn(StrEnum):
    """Why a message goes no further."""

    LOOP = "loop"
    """The peer to which it would go has passed it on already."""
    TTL_ENDED = "ttl ended"
    REPEATED = "repeated"
    """A message of this id was published here."""
    TOO_LARGE = "too large"
    """Its frame would be larger than one of a peer may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a gateway propagates.

    Args:
        gateway: its id, as it stands in paths.
        cost: taken from the TTL of each message.
        ttl: of notifications that come from no peer.
    """

    gateway: str
    cost: int
    ttl: int

    def incoming_header(self, header: PropagateHeader, sender: str) -> PropagateHeader | NotPassedOn:
        """Return the header with which a message enters the federation at this gateway, or why it does not enter.

        The TTL has paid the gateway's cost then, and the path ends with the gateway. Only computes.

        Args:
            header: as the message came.
            sender: the id of the peer that has sent the message.
        """
        if self.gateway in header.path:
            return NotPassedOn.LOOP
        path = header.path if sender in header.path else (*header.path, sender)
        return self._passed_on(replace(header, path=path))

    def outgoing_header(self, header: PropagateHeader, peer: str) -> PropagateHeader | NotPassedOn:
        """Return the header with which a notification goes to a peer, or why it does not go there.

        The TTL has paid the gateway's cost then, unless it did so at this gateway before. Only computes.

        Args:
            header: of the notification (:meth:`header_of`).
            peer: the id of the peer to which it would go.
        """
        if peer in header.path:
            return NotPassedOn.LOOP
        if header.path and header.path[-1] == self.gateway:
            return header
        return self._passed_on(header)

    def _passed_on(self, header: PropagateHeader) -> PropagateHeader | NotPassedOn:
        if header.ttl < self.cost or len(header.path) >= MAX_MESSAGE_TTL:
            return NotPassedOn.TTL_ENDED
        return replace(header, ttl=header.ttl - self.cost, path=(*header.path, self.gateway))

    def header_of(self, attributes: Mapping[str, Value], coordinate: str) -> PropagateHeader:
        """Return the header of a notification, from the attributes that :func:`as_attributes` made.

        A notification that no gateway published begins here: its id is its coordinate, which nothing else in time or
        space has, and its TTL that of the policy. So does one with a header that no gateway writes.

        Args:
            coordinate: of the notification, as ORIGIN:OFFSET.
        """
        ttl, path, identity = attributes.get(TTL), attributes.get(PATH), attributes.get(ID, coordinate)
        peers = tuple(path.split(_BETWEEN)) if isinstance(path, str) else ()
        if not isinstance(ttl, int) or not isinstance(identity, str):
            return PropagateHeader(ttl=self.ttl, id=coordinate)
        is_path = 0 < len(peers) <= MAX_MESSAGE_TTL and len(set(peers)) == len(peers)
        if not 0 <= ttl <= MAX_MESSAGE_TTL or not is_path or not all(map(is_id, (identity, *peers))):
            return PropagateHeader(ttl=self.ttl, id=coordinate)
        return PropagateHeader(ttl=ttl, path=peers, id=identity)


def as_attributes(header: PropagateHeader) -> dict[str, Value]:
    """Return the attributes that carry a header through the federation."""
    attributes: dict[str, Value] = {TTL: header.ttl, PATH: _BETWEEN.join(header.path)}
    return attributes if header.id is None else attributes | {ID: header.id}


def check_unreserved(names: Mapping[str, Value]) -> None:
    """Check that a peer's message has none of the RESERVED attributes, which carry a header.

    Args:
        names: the attributes of the message.

    Raises:
        BadMessage: it has one; `field` names the attribute.
    """
    for name in RESERVED:
        if name in names:
            raise BadMessage("this attribute is the header's, which a message has as XML", field=name)
