"""Code of a registered model, which MLflow copies into the version and runs when the version is loaded.

Versions keep the copy of their release, so `MembershipClassifier(folder, model=, device=, dtype=)`, its `columns`
and its method `verdicts` must not change.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from fsd.api import COMPLETION, MESSAGES, InputColumn, UsageError, first_line, is_missing, table_documents
from pipelines.api import MembershipClassifier

RATES = {"fpr": 0.05, "fdr": 0.1}
"""Parameters of `predict` that are rates, with their defaults."""
MOST_TEXTS = 10_000
"""Texts of a request."""
MOST_CHARACTERS = 5 * 10**6
"""Characters of all texts of a request: each takes about 70 bytes of memory, and five millions half a minute."""
ANSWERS = ("text", MESSAGES, COMPLETION)
"""Columns of which one holds what is scored of a row."""
SAME_SOURCE = "same_source"
FLAG = "--same-source"
"""Parameter of `predict` that asserts that the texts are of the calibrated kind."""


def _refuse_unknown(record: logging.LogRecord) -> bool:
    """Raise an error in place of MLflow's warning that it ignores a misspelt parameter and uses the default."""
    message = record.getMessage()
    # other models of the same process have other parameters, which are their own affair
    if message.startswith("Unrecognized params") and all(repr(name) in message for name in RATES):
        unknown = message.split("[", 1)[1].split("]")[0]
        raise mlflow.MlflowException.invalid_parameter_value(
            f"params must be among {', '.join([*RATES, SAME_SOURCE])}; got {unknown}"
        )
    return True


class Model(mlflow.pyfunc.PythonModel):  # type: ignore[misc] # mlflow's imports are skipped by mypy
    """`MembershipClassifier` as a pyfunc model: a table of texts or chats in, a table of verdicts out."""

    def load_context(self, context: Any) -> None:
        """Load the base model, adapter and calibration."""
        settings = {}
        for name, value in (context.model_config or {}).items():
            settings[name.removeprefix("serving_")] = value
        self.classifier = MembershipClassifier(context.artifacts["adapter"], **settings)
        logging.getLogger("mlflow.models.utils").addFilter(_refuse_unknown)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Verdicts on rows as those of the calibration were read, at the rates in `params`, `RATES` if there are none.

        A request of fewer than five texts cannot be tested for being of the calibrated kind: it gets scores and ranks
        alone, unless `params` assert that with `same_source`. Number and length of the texts and the rates are checked
        before a tokenizer or the model sees one. Texts without a verdict have the p_value None, and those
        that are not scored the score None. An MlflowException, INVALID_PARAMETER_VALUE (status 400), has the message of
        the UsageError.
        """
        try:
            settings = {**RATES, SAME_SOURCE: False, **(params or {})}
            rates = {name: _rate(name, settings[name]) for name in RATES}
            asserted = settings[SAME_SOURCE]
            if not isinstance(asserted, bool):
                raise UsageError(f"{SAME_SOURCE} must be true or false; got {asserted!r}")
            _check_size(model_input)
            _check_answers(model_input, self.classifier.columns)
            documents = table_documents("request", model_input)
            table = self.classifier.verdicts(documents, **rates, same_source=asserted)
        except UsageError as error:
            raise mlflow.MlflowException.invalid_parameter_value(str(error)) from error
        # A request has parameters, and no flags.
        table["warning"] = table["warning"].str.replace(FLAG, f"{SAME_SOURCE}: true", regex=False)
        return table.astype(object).where(table.notna(), None)  # JSON has no NaN


def _rate(name: str, value: Any) -> float:
    if not isinstance(value, int | float):
        received = "null" if value is None else repr(value)
        raise UsageError(f"{name} must be a number; got {received}")
    return float(value)


def _check_size(table: pd.DataFrame) -> None:
    """Refuse a request that would take the memory or the time of all others; what is no text is refused later."""
    if len(table) > MOST_TEXTS:
        raise UsageError(f"a request must have at most {MOST_TEXTS:,} texts; it has {len(table):,}: send it in parts")
    lengths = table.map(_characters).sum(axis=1).to_numpy()
    if lengths.sum() > MOST_CHARACTERS:
        raise UsageError(
            f"the texts of a request must have at most {MOST_CHARACTERS:,} characters together; they have "
            f"{lengths.sum():,}: send it in parts"
        )


def _characters(cell: Any) -> int:
    """The length of a text; of a chat, of all that its turns hold, as JSON."""
    if isinstance(cell, str):
        return len(cell)
    if is_missing(cell):
        return 0
    try:
        return len(json.dumps(cell, ensure_ascii=False, default=list))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a cell must be a text, or what JSON holds; {first_line(error)}") from error


def _check_answers(table: pd.DataFrame, columns: Sequence[InputColumn]) -> None:
    """Refuse a row without anything to be scored in the columns that the model takes; MLflow drops all others."""
    names = [column.name for column in columns if column.name in ANSWERS]
    lacking = np.flatnonzero(table.reindex(columns=names).isna().all(axis=1))
    # A table that has no such column has no rows, either.
    if len(lacking) or table.empty:
        number = next(iter(lacking.tolist()), 0)
        raise UsageError(f"a row must have {' or '.join(names)} that is not blank; row {number} has none")


mlflow.models.set_model(Model())
