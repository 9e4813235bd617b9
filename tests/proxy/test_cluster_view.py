"""What a proxy knows of the registry's rows, beside a model that counts them anew."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.cluster_view import ClusterView
from waypost.identity import Epoch, Ownership, ProxyId, SessionId, SiteId

SESSIONS = st.sampled_from([SessionId(name) for name in "stuv"])
OWNERSHIPS = st.builds(Ownership, st.sampled_from([ProxyId(name) for name in "abc"]), st.builds(Epoch, st.just(1)))
CHANGES = st.one_of(
    st.tuples(st.just("changed"), SESSIONS, st.none() | OWNERSHIPS),
    st.tuples(st.just("claimed"), SESSIONS, OWNERSHIPS),
    st.tuples(st.just("reloaded"), st.dictionaries(SESSIONS, OWNERSHIPS), st.none()),
)


@given(st.lists(CHANGES, max_size=30))
def test_the_load_of_each_proxy_is_the_number_of_its_rows(changes: list[tuple[str, object, object]]) -> None:
    view = ClusterView(ProxyId("a"), SiteId("A"))
    rows: dict[SessionId, Ownership] = {}
    for kind, subject, ownership in changes:
        if kind == "reloaded":
            assert isinstance(subject, dict)
            view.reloaded(subject, {}, {}, 0)
            rows = dict(subject)
            continue
        session = SessionId(str(subject))
        assert ownership is None or isinstance(ownership, Ownership)
        if ownership is None:
            view.owner_changed(session, None)
            rows.pop(session, None)
            continue
        (view.owner_changed if kind == "changed" else view.owned_by)(session, ownership)
        rows[session] = ownership
        assert view.loads() == Counter(row.proxy for row in rows.values())
    assert view.owners == rows
    assert dict(view.loads()) == dict(Counter(row.proxy for row in rows.values()))
