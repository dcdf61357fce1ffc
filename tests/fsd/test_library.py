"""The library in three functions: its docstring's example, and what it refuses."""

import doctest

import pytest

import fsd
from fsd import library
from fsd.errors import UsageError


@pytest.mark.slow
def test_the_example_of_the_docstring_runs():
    results = doctest.testmod(library)
    assert results.attempted > 5
    assert results.failed == 0


def test_a_text_among_the_unseen_ones_is_refused():
    with pytest.raises(UsageError, match="texts must not be among the unseen texts; got 1 that are"):
        fsd.deviation("embedded", ["a text"], ["a text"], detectors=["loss"])
