"""The XML documents of a propagate service: the forms of its paper, and what is no such document."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.gateway.propagate_messages import (
    LeaseMessage,
    LeaseMessageType,
    PropagateHeader,
    decode,
    encode,
)
from waypost.errors import BadMessage
from waypost.limits import MAX_GATEWAY_LEASE_S, MAX_ID_LENGTH, MAX_MESSAGE_TTL

GRANTED = """<?xml version="1.0"?>
<!DOCTYPE jxta:PropagateLeaseMessage>
<jxta:PropagateLeaseMessage>
  <Type>LeaseGranted</Type>
  <Peer>urn:jxta:uuid-5961626164</Peer>
  <Lease>60000</Lease>
</jxta:PropagateLeaseMessage>
"""
HEADER = """<?xml version="1.0"?>
<!DOCTYPE jxta:PropagateMessage>
<jxta:PropagateMessage>
  <TTL>3</TTL>
  <Path>urn:jxta:uuid-01</Path>
  <Path>urn:jxta:uuid-02</Path>
  <ID>7&lt;&amp;</ID>
</jxta:PropagateMessage>
"""


def test_largest_time_to_live_is_that_of_one_byte() -> None:
    assert decode(header("<TTL>255</TTL>")) == PropagateHeader(ttl=255)


def test_longest_header_can_be_said() -> None:
    path = tuple(f"{number:03}" + "&" * (MAX_ID_LENGTH - 3) for number in range(MAX_MESSAGE_TTL))
    longest = PropagateHeader(ttl=MAX_MESSAGE_TTL, path=path, id='"' * MAX_ID_LENGTH)
    assert decode(encode(longest)) == longest


def lease(*elements: str) -> str:
    return f"<jxta:PropagateLeaseMessage>{''.join(elements)}</jxta:PropagateLeaseMessage>"


def header(*elements: str) -> str:
    return f"<jxta:PropagateMessage>{''.join(elements)}</jxta:PropagateMessage>"


def test_forms_of_the_paper_are_read_and_written() -> None:
    granted = LeaseMessage(type=LeaseMessageType.LEASE_GRANTED, peer="urn:jxta:uuid-5961626164", lease_ms=60_000)
    passed = PropagateHeader(ttl=3, path=("urn:jxta:uuid-01", "urn:jxta:uuid-02"), id="7<&")
    assert (decode(GRANTED), encode(granted)) == (granted, GRANTED)
    assert (decode(HEADER), encode(passed)) == (passed, HEADER)


@pytest.mark.parametrize("kind", [kind for kind in LeaseMessageType if kind is not LeaseMessageType.LEASE_GRANTED])
def test_a_request_has_a_peer_and_perhaps_its_advertisement(kind: LeaseMessageType) -> None:
    advertisement = "<jxta:PA>\n <Name>a &amp; b</Name>\r\n</jxta:PA> "
    for document in (LeaseMessage(type=kind, peer="p"), LeaseMessage(type=kind, peer="p", advertisement=advertisement)):
        assert decode(encode(document)) == document


def test_what_does_not_matter_is_not_looked_at() -> None:
    document = (
        f'<!-- a -->\n<jxta:PropagateMessage xmlns:jxta="http://x"> <ID> 7\n</ID><TTL a="b">2</TTL>{"<!-- b -->"}'
    )
    assert decode(document + "</jxta:PropagateMessage>\n") == PropagateHeader(ttl=2, id="7")
    assert decode(header("<TTL>1</TTL>", "<Path>a<![CDATA[&b]]></Path>")) == PropagateHeader(ttl=1, path=("a&b",))


texts = st.text(max_size=300)
ids = st.one_of(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20), texts)
documents = st.one_of(
    st.builds(
        LeaseMessage,
        type=st.sampled_from(LeaseMessageType),
        peer=ids,
        advertisement=st.none() | texts,
        lease_ms=st.none() | st.integers(-1, 10**13),
    ),
    st.builds(PropagateHeader, ttl=st.integers(-1, 300), path=st.lists(ids, max_size=5).map(tuple), id=st.none() | ids),
)


def is_sayable(document: LeaseMessage | PropagateHeader) -> bool:
    """A dumber model of what has a form in XML."""

    def is_id(text: str) -> bool:
        return 0 < len(text) <= MAX_ID_LENGTH and text.isprintable() and text.strip() == text and is_xml(text)

    def is_xml(text: str) -> bool:
        return all(
            ord(one) in (9, 10, 13) or 32 <= ord(one) < 0xD800 or 0xE000 <= ord(one) < 0xFFFE or ord(one) > 0xFFFF
            for one in text
        )

    if isinstance(document, PropagateHeader):
        peers = [*document.path, *([] if document.id is None else [document.id])]
        return (
            0 <= document.ttl <= MAX_MESSAGE_TTL
            and len(set(document.path)) == len(document.path)
            and all(map(is_id, peers))
        )
    if (document.lease_ms is None) == (document.type is LeaseMessageType.LEASE_GRANTED):
        return False
    is_lease = document.lease_ms is None or 0 <= document.lease_ms <= 1000 * MAX_GATEWAY_LEASE_S
    return is_lease and is_id(document.peer) and (document.advertisement is None or is_xml(document.advertisement))


@given(documents)
@example(PropagateHeader(ttl=0, id="\x7f"))
def test_what_is_written_is_read_as_it_was_and_the_rest_is_refused(document: LeaseMessage | PropagateHeader) -> None:
    if is_sayable(document):
        assert decode(encode(document)) == document
    else:
        with pytest.raises(BadMessage):
            encode(document)


BOMB = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
HOSTILE = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY a0 "ha">{BOMB}]>{header("<TTL>1</TTL>", "<ID>&a9;</ID>")}',
    "one large entity": f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]>{header("<TTL>1</TTL>", "<ID>&a;&a;&a;</ID>")}',
    "a file": f'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>{header("<TTL>1</TTL>", "<ID>&a;</ID>")}',
    "a parameter entity": f'<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a"> %a;]>{header("<TTL>1</TTL>")}',
    "nested": "<jxta:PropagateMessage>" * 10_000,
    "long": header("<TTL>1</TTL>", f"<ID>{'a' * 200_000}</ID>"),
    "longer": header("<TTL>1</TTL>", f"<ID>{'a' * 600_000}</ID>"),
    "many peers": header("<TTL>1</TTL>", *(f"<Path>{n}</Path>" for n in range(MAX_MESSAGE_TTL + 1))),
    "a peer twice": header("<TTL>1</TTL>", "<Path>a</Path>", "<Path>a</Path>"),
    "elements in an element": header("<TTL>1</TTL>", "<ID><b>1</b></ID>"),
    "text between": header("a", "<TTL>1</TTL>"),
    "no element of it": header("<TTL>1</TTL>", "<Peer>a</Peer>"),
    "TTL twice": header("<TTL>1</TTL>", "<TTL>1</TTL>"),
    "no TTL": header("<ID>1</ID>"),
    "another root": "<html/>",
    "no root": "<?xml version='1.0'?>",
    "two roots": header("<TTL>1</TTL>") * 2,
    "another encoding": f'<?xml version="1.0" encoding="utf-16"?>{header("<TTL>1</TTL>")}',
    "an unknown encoding": f'<?xml version="1.0" encoding="klingon"?>{header("<TTL>1</TTL>")}',
    "a lone surrogate": header("<TTL>1</TTL>", "<ID>\ud800</ID>"),
    "an empty id": header("<TTL>1</TTL>", "<ID> </ID>"),
    "a line break in an id": header("<TTL>1</TTL>", "<ID>a\nb</ID>"),
    "a type of its own": lease("<Type>LeaseStolen</Type>", "<Peer>p</Peer>"),
    "no peer": lease("<Type>LeaseRequest</Type>"),
    "a grant of nothing": lease("<Type>LeaseGranted</Type>", "<Peer>p</Peer>"),
    "a request with a time": lease("<Type>LeaseRequest</Type>", "<Peer>p</Peer>", "<Lease>1</Lease>"),
    "nothing": "",
    "null": "\0",
    **{
        f"TTL {ttl}": header(f"<TTL>{ttl}</TTL>")
        for ttl in ("256", "-1", "+1", "1e2", "٣", "9" * 5_000, "", "0x1", "1 1")
    },
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_document_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadMessage) as error:
        decode(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_a_document_that_is_cut_is_none() -> None:
    for text in (GRANTED.rstrip(), HEADER.rstrip()):
        for end in range(len(text)):
            with pytest.raises(BadMessage):
                decode(text[:end])


@given(st.text(), st.integers(0, len(HEADER)), st.integers(0, 20))
def test_anything_in_a_document_is_read_or_refused(inserted: str, at: int, removed: int) -> None:
    for text in (inserted, HEADER[:at] + inserted + HEADER[at + removed :]):
        try:
            assert isinstance(decode(text), PropagateHeader) and re.search("TTL", text)
        except BadMessage:
            continue
