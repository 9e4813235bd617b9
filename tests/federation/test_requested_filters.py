"""What is requested of a neighbour, and what is covered by it. The model is dumb: every pair is compared."""

from __future__ import annotations

import random

import msgspec
import pytest

import federation.site.requested_filters as module
from federation.site.requested_filters import NeededFilter, RequestChanges, RequestedFilters
from matching.covering import covers
from waypost.subscription import parse

WIDE = ["require(n)", "n > 2", "n > 5", "n > 2 || n == 0", "n < 9"]
NARROW = [f"n == {number}" for number in range(10)] + [f'n > {number} && s == "x"' for number in range(6)]
LONG = 'n == 3 && s != "' + "x" * 300 + '"'


def change(requests: RequestedFilters, added: list[str], removed: list[str], installation: int) -> RequestChanges:
    """Need these, which nobody wants by keys, and those no more."""
    return requests.change(dict.fromkeys(added, False), removed, installation)


def restored(requests: RequestedFilters) -> RequestedFilters:
    data = msgspec.msgpack.encode(requests.needed)
    return RequestedFilters(msgspec.msgpack.decode(data, type=dict[str, NeededFilter]))


def rows(requests: RequestedFilters) -> dict[str, tuple[int | None, str | None]]:
    return {text: (row.installation, row.cover) for text, row in requests.needed.items()}


def is_covering(wide: str, narrow: str) -> bool:
    return covers(parse(wide).tree, parse(narrow).tree)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_needed_is_requested_or_covered_and_nothing_requested_covers_another(seed: int) -> None:
    rng = random.Random(seed)
    requests, needed = RequestedFilters(), set[str]()
    for installation in range(40):
        added = set(rng.sample(NARROW + WIDE, rng.randint(0, 6))) - needed
        removed = rng.sample(sorted(needed), rng.randint(0, min(4, len(needed))))
        before, copy = dict(requests.installations), restored(requests)
        changes = requests.change(dict.fromkeys(added, False), removed, installation)
        needed = needed.union(added).difference(removed)
        assert requests.needed.keys() == needed
        for text, row in requests.needed.items():
            assert (row.installation is None) is (row.cover is not None) is (text not in requests.installations)
            if row.cover is not None:
                assert is_covering(row.cover, text) and row.cover in needed
                carrier = requests.carrier_of(text)
                assert carrier in requests.installations and text in requests.carried_by(carrier)
        carried = [text for root in requests.installations for text in requests.carried_by(root)]
        assert sorted(carried) == sorted(needed)
        assert not [
            (wide, narrow)
            for wide in requests.installations
            for narrow in requests.installations
            if wide != narrow and is_covering(wide, narrow) and not is_covering(narrow, wide)
        ]
        toggled = {text for text, number in (before.items() ^ requests.installations.items())}
        assert toggled <= changes.changed
        assert all(requests.installations[text] == installation for text in toggled & requests.installations.keys())
        # A proxy that began at a snapshot decides like those that have read the log from its beginning.
        copy.change(dict.fromkeys(added, False), removed, installation)
        assert rows(copy) == rows(requests) and copy.installations == requests.installations
        assert copy._carried == requests._carried == restored(requests)._carried


def test_two_hundred_narrow_filters_are_one_request_beside_a_wide_one() -> None:
    requests = RequestedFilters()
    narrow = [f'kind == "k{number}"' for number in range(200)]
    change(requests, narrow, [], 1)
    assert len(requests.installations) == 200
    changes = change(requests, ["require(kind)"], [], 2)
    assert requests.installations == {"require(kind)": 2}
    assert set(changes.newly_covered) == set(narrow)
    changes = change(requests, [], ["require(kind)"], 3)
    assert requests.installations == dict.fromkeys(narrow, 3)
    assert changes.changed == {"require(kind)", *narrow}


def test_what_covers_many_goes_on_covering_them_under_a_wider_one() -> None:
    requests = RequestedFilters()
    groups = [f'begins-with(kind, "{letter}")' for letter in "abc"]
    narrow = [f'kind == "{letter}{number}"' for letter in "abc" for number in range(20)]
    change(requests, [*narrow, *groups], [], 1)
    change(requests, ["require(kind)"], [], 2)
    assert requests.installations == {"require(kind)": 2}
    assert sorted(requests.carried_by("require(kind)")) == sorted(["require(kind)", *groups, *narrow])
    changes = change(requests, [], ["require(kind)"], 3)
    assert requests.installations == dict.fromkeys(groups, 3)
    assert changes.changed == {"require(kind)", *groups}
    # In the middle: what it covered is covered by what covers it.
    change(requests, ["require(kind)"], [], 4)
    change(requests, [], [groups[0]], 5)
    assert requests.needed['kind == "a7"'].cover == "require(kind)"


def test_a_long_expression_is_requested_as_it_is() -> None:
    requests = RequestedFilters()
    change(requests, ["n == 3", LONG], [], 1)
    assert requests.installations == {"n == 3": 1, LONG: 1}


def test_what_cannot_be_parsed_here_is_requested_as_it_is() -> None:
    requests = RequestedFilters()
    change(requests, ["of a later version(n)", "require(n)"], [], 1)
    assert len(requests.installations) == 2
    change(requests, [], ["of a later version(n)"], 2)
    assert requests.installations == {"require(n)": 1}


def test_an_expression_covers_no_more_others_than_one_change_may_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COVERED", 3)
    requests = RequestedFilters()
    change(requests, ["n == 0", "n == 1", "n == 2", "n == 3", "n == 4"], [], 1)
    change(requests, ["require(n)"], [], 2)
    assert len(requests.installations) == 1 + 2
    change(requests, ["n == 9"], [], 3)
    assert requests.installations["n == 9"] == 3


def test_what_is_wanted_by_keys_stands_apart() -> None:
    requests = RequestedFilters()
    requests.change({"n > 0": False, "n == 3": False, "n == 5": True}, [], 1)
    assert requests.installations == {"n > 0": 1, "n == 5": 1}
    # It comes to be wanted by keys, and by none again: what is requested all the while keeps its installation.
    changes = requests.change({"n == 3": True, "n == 5": False, "n > 0": True}, [], 2)
    assert requests.installations == {"n > 0": 1, "n == 3": 2, "n == 5": 1}
    assert changes.changed == {"n > 0", "n == 3", "n == 5"}
    requests.change({"n > 0": False, "n == 3": False}, [], 3)
    assert requests.installations == {"n > 0": 1}


def test_costly_expressions_are_compared_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []
    monkeypatch.setattr(module, "_compared", lambda wide, narrow: compared.append((wide, narrow)))
    requests = RequestedFilters()
    costly = [f"n > 0 && m % 1000 == {number}" for number in range(200)]
    change(requests, costly, [], 1)
    assert 0 < len(compared) <= module.MAX_TREES_COMPARED
    change(requests, ["n > 0"], [], 2)
    assert requests.installations == {"n > 0": 2}
    compared.clear()
    change(requests, [], ["n > 0"], 3)
    assert len(compared) <= module.MAX_TREES_COMPARED and len(requests.installations) == 200


def test_others_that_may_cover_it_do_not_hide_what_certainly_covers_an_expression() -> None:
    requests = RequestedFilters()
    change(requests, [f'n >= -1 && s != "k{number}"' for number in range(40)], [], 1)
    change(requests, ["n >= 0"], [], 2)
    change(requests, [f"n == {number}" for number in range(50)], [], 3)
    assert len(requests.installations) == 41


def test_where_very_many_are_found_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module._Budget
    requests = RequestedFilters()
    change(requests, [f'n > {number} && s == "{number}"' for number in range(20)], [], 1)
    monkeypatch.setattr(module, "_Budget", lambda: made(candidates=10))
    change(requests, ["require(n)"], [], 2)
    assert len(requests.installations) == 21
    assert rows(restored(requests)) == rows(requests)
