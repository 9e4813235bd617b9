"""Decomposed texts are those of the standard library, however long a run of marks is, and come in time."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.subscription.decomposition import MARKS_WITHIN, SHORT_RUN, Form, decomposer

ODD = "aéếが각\ufdfa\u0344\u0f73\u09cb\ud800\U0001d160\u0301\u0323\u3099\u0f71\u0f72\u302a"
FORMS: tuple[Form, ...] = ("NFD", "NFKD")


@given(st.lists(st.tuples(st.sampled_from(ODD), st.integers(1, 3 * SHORT_RUN)), max_size=20), st.sampled_from(FORMS))
def test_outcome_is_that_of_the_standard_library(pieces: list[tuple[str, int]], form: Form) -> None:
    text = "".join(character * count for character, count in pieces)
    assert decomposer(form)(text) == unicodedata.normalize(form, text)


@given(st.text(st.sampled_from(ODD[10:]), max_size=200), st.sampled_from(FORMS))
def test_mixed_marks_are_ordered_as_the_standard_library_does(text: str, form: Form) -> None:
    assert decomposer(form)("ế" + text) == unicodedata.normalize(form, "ế" + text)


@pytest.mark.parametrize("form", FORMS)
def test_long_run_of_marks_takes_no_time_that_grows_with_its_square(form: Form) -> None:
    decomposer(form)("é")
    began = time.thread_time()
    decomposer(form)("a" + "\u0301\u0323" * 62_500)
    assert time.thread_time() - began < 1


def test_all_marks_are_where_they_are_looked_for() -> None:
    marks = [p for p in range(sys.maxunicode + 1) if unicodedata.combining(unicodedata.normalize("NFKD", chr(p))[0])]
    assert all(point in MARKS_WITHIN for point in marks)
