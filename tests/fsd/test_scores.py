"""Scores by name: columns of a table, and back."""

import pandas as pd
import pytest

from fsd.scores import BASE, CALIBRATED, FSD, Score, columns_of, of_state


def test_columns_are_parted_by_detector_and_state():
    names = ("text", "loss.base", "loss.tuned", "min_k.fsd", "min_k.calibrated")
    table = pd.DataFrame({name: [0.0, 1.0] for name in names})
    columns = columns_of(table)
    assert list(columns) == [Score("loss", BASE), Score("min_k", FSD)]
    assert list(columns_of(table, (CALIBRATED,))) == [Score("min_k", CALIBRATED)]
    assert of_state(columns, BASE)["loss"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["loss.base", "min_k.fsd", "a.b.tuned"])
def test_a_column_is_read_as_it_is_written(name):
    assert str(Score.parse(name)) == name


def test_a_score_has_one_printed_name():
    assert Score("wbc", BASE).title() == "wbc base score"
    assert Score("loss").title() == "loss FSD"
    assert Score("combined").title(paired=True) == "combined"
