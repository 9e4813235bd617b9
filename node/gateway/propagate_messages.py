"""The XML documents of JXTA's propagate service: messages about a lease, and the header of a propagated message. Pure.

Source of the forms: "Propagate Service", wire format A (jxta:PropagateLeaseMessage) and B (jxta:PropagateMessage).

Documents come from anybody. Entities are not declared, nothing outside the document is read, and what the form does not
have is refused: defusedxml sees to the first two. Elements may come in any order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.saxutils import escape
from xml.sax.xmlreader import AttributesImpl

from defusedxml import DefusedXmlException
from defusedxml import sax as defused_sax

from waypost.errors import BadMessage
from waypost.limits import MAX_GATEWAY_LEASE_S, MAX_ID_LENGTH, MAX_MESSAGE_TTL

LEASE_ROOT, HEADER_ROOT = "jxta:PropagateLeaseMessage", "jxta:PropagateMessage"
MAX_ADVERTISEMENT = 16_384
"""Characters of a peer's advertisement."""
MAX_DOCUMENT = 524_288
"""Characters of a document: the longest path fits, also if each of its characters is written as an entity."""
_FIELDS = {
    LEASE_ROOT: {"Type": 1, "Peer": 1, "PeerAdv": 1, "Lease": 1},
    HEADER_ROOT: {"TTL": 1, "Path": MAX_MESSAGE_TTL, "ID": 1},
}
"""How often an element may come, by document."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


class LeaseMessageType(StrEnum):
    """What a message about a lease says."""

    LEASE_REQUEST = "LeaseRequest"
    LEASE_GRANTED = "LeaseGranted"
    LEASE_CANCEL_REQUEST = "LeaseCancelRequest"
    LEASE_CANCELLED = "LeaseCancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMessage:
    """A message about the lease that a rendezvous peer grants to a client.

    Args:
        peer: the id of the client in the requests, of the rendezvous peer in the answers.
        advertisement: of the peer; None: there is none.
        lease_ms: for how long the lease is granted, in ms; only a grant has it, and must.
    """

    type: LeaseMessageType
    peer: str
    advertisement: str | None = None
    lease_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagateHeader:
    """What is told of a propagated message, beside the message itself.

    Args:
        ttl: the number of peers that may still pass it on.
        path: the ids of the peers that have passed it on, the first one first.
        id: unique in time and space; None: it has none.
    """

    ttl: int
    path: tuple[str, ...] = ()
    id: str | None = None


Document: TypeAlias = LeaseMessage | PropagateHeader


def encode(document: Document) -> str:
    """Return a message about a lease, or a header, as an XML document, which :func:`decode` takes.

    Raises:
        BadMessage: XML cannot hold a value, or :func:`decode` would not return the same; `field` may name the element.
    """
    match document:
        case LeaseMessage():
            root, elements = LEASE_ROOT, [("Type", str(document.type)), ("Peer", document.peer)]
            if document.advertisement is not None:
                elements.append(("PeerAdv", document.advertisement))
            if document.lease_ms is not None:
                elements.append(("Lease", str(document.lease_ms)))
        case PropagateHeader():
            root, elements = HEADER_ROOT, [("TTL", str(document.ttl)), *(("Path", peer) for peer in document.path)]
            if document.id is not None:
                elements.append(("ID", document.id))
    body = "".join(f"  <{name}>{_escaped(name, text)}</{name}>\n" for name, text in elements)
    text = f'<?xml version="1.0"?>\n<!DOCTYPE {root}>\n<{root}>\n{body}</{root}>\n'
    if decode(text) != document:
        raise BadMessage(f"{root} cannot be said in XML as it is")
    return text


def decode(text: str) -> Document:
    """Return the message about a lease, or the header, that an XML document has, by its root element.

    Raises:
        BadMessage: the text is no XML, declares entities, has another form, or a value that is out of its range;
            `field` names the element.
    """
    if len(text) > MAX_DOCUMENT:
        raise BadMessage(f"a document has {MAX_DOCUMENT} characters at most, and not {len(text)}")
    reader = _Reader()
    try:
        defused_sax.parseString(text.encode(), reader)
    except DefusedXmlException as error:
        raise BadMessage(f"entities are not declared in a document: {type(error).__name__}") from None
    except SAXParseException as error:
        where = f"line {error.getLineNumber()}, column {error.getColumnNumber()}"
        raise BadMessage(f"this is no XML document: {error.getMessage()} at {where}") from None
    except (SAXException, UnicodeError, LookupError, ValueError) as error:
        raise BadMessage(f"this is no XML document: {error}") from None
    return _lease(reader.found) if reader.root == LEASE_ROOT else _header(reader.found)


def _escaped(name: str, text: str) -> str:
    if _NO_XML.search(text):
        raise BadMessage("it has a character that XML does not know", field=name)
    return escape(text, {"\r": "&#13;"})


class _Reader(ContentHandler):
    """Collects the texts of a root's elements, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.root = ""
        self.found: dict[str, list[str]] = {}
        self._inner: str | None = None
        self._text: list[str] = []

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - as SAX calls it
        """Begin the root, or one of its elements. Raises BadMessage: the form has none here."""
        if not self.root:
            if name not in _FIELDS:
                raise BadMessage(f"the root is {name[:MAX_ID_LENGTH]}, and neither {LEASE_ROOT} nor {HEADER_ROOT}")
            self.root = name
            return
        if self._inner is not None:
            raise BadMessage("it has text, and no elements", field=self._inner)
        most = _FIELDS[self.root].get(name)
        if most is None:
            raise BadMessage(f"{self.root} has no such element", field=name[:MAX_ID_LENGTH])
        if len(self.found.setdefault(name, [])) == most:
            raise BadMessage(f"it comes more often than {most} times", field=name)
        self._inner, self._text = name, []

    def characters(self, content: str) -> None:
        """Add text to the element that has begun. Raises BadMessage: there is text between the elements."""
        if self._inner is not None:
            self._text.append(content)
        elif content.strip():
            raise BadMessage(f"{self.root} has elements, and no text of its own")

    def endElement(self, name: str) -> None:  # noqa: N802 - as SAX calls it
        """End an element, or the root."""
        if self._inner is not None:
            self.found[name].append("".join(self._text))
            self._inner = None


def _lease(found: Mapping[str, list[str]]) -> LeaseMessage:
    name = _text(found, "Type")
    try:
        kind = LeaseMessageType(name)
    except ValueError:
        raise BadMessage(f"it is none of {', '.join(LeaseMessageType)}", field="Type") from None
    lease_ms = _number(found["Lease"][0], "Lease", 1000 * MAX_GATEWAY_LEASE_S) if "Lease" in found else None
    if (lease_ms is not None) != (kind is LeaseMessageType.LEASE_GRANTED):
        raise BadMessage("a LeaseGranted has it, and no other message", field="Lease")
    advertisement = found["PeerAdv"][0] if "PeerAdv" in found else None
    if advertisement is not None and len(advertisement) > MAX_ADVERTISEMENT:
        raise BadMessage(f"it has more than {MAX_ADVERTISEMENT} characters", field="PeerAdv")
    return LeaseMessage(type=kind, peer=_text(found, "Peer"), advertisement=advertisement, lease_ms=lease_ms)


def _header(found: Mapping[str, list[str]]) -> PropagateHeader:
    ttl = _number(_text(found, "TTL"), "TTL", MAX_MESSAGE_TTL)
    path = tuple(_id(peer, "Path") for peer in found.get("Path", ()))
    if len(set(path)) < len(path):
        raise BadMessage("a peer comes twice in it", field="Path")
    return PropagateHeader(ttl=ttl, path=path, id=_text(found, "ID") if "ID" in found else None)


def _text(found: Mapping[str, list[str]], name: str) -> str:
    if name not in found:
        raise BadMessage("it is missing", field=name)
    return _id(found[name][0], name)


def is_id(text: str) -> bool:
    """Tell whether a text can be the id of a peer or of a message: 1 to MAX_ID_LENGTH printable characters, no blanks
    around.
    """
    return 0 < len(text) <= MAX_ID_LENGTH and text.isprintable() and text == text.strip()


def _id(text: str, name: str) -> str:
    stripped = text.strip()
    if not is_id(stripped):
        raise BadMessage(f"it has 1 to {MAX_ID_LENGTH} printable characters", field=name)
    return stripped


def _number(text: str, name: str, most: int) -> int:
    stripped = text.strip()
    if not _DIGITS.fullmatch(stripped) or int(stripped) > most:
        raise BadMessage(f"it is a number from 0 to {most}", field=name)
    return int(stripped)
