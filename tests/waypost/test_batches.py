"""Batches bounded in number and in bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waypost.batches import batches


@given(st.lists(st.integers(0, 30)), st.integers(1, 5), st.integers(1, 40))
def test_all_come_in_order_and_no_batch_is_past_a_bound_but_one_item_alone(
    sizes: list[int], most: int, most_bytes: int
) -> None:
    cut = [list(batch) for batch in batches(sizes, lambda size: size, max_items=most, max_bytes=most_bytes)]
    assert [size for batch in cut for size in batch] == sizes
    assert all(batch and len(batch) <= most for batch in cut)
    assert all(sum(batch) <= most_bytes or len(batch) == 1 for batch in cut)
