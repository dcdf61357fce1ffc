"""The audit of a run in short: it travels with the registered adapter and is repeated beside its verdicts."""

import json
from dataclasses import dataclass

from fsd.errors import UsageError
from fsd.evaluation.audit import explains
from fsd.evaluation.intervals import Estimate


@dataclass(frozen=True)
class AuditSummary:
    """How well a detector and a blind classifier, which never sees the model, separate the same benchmark.

    Attributes:
        detector: the detector that was chosen.
        auc: AUC of its scores in `state` on the test texts.
        blind: AUC of the blind classifier; None if there is none.
        reason: why there is none.
        contemporaries: whether the non-members are of the members' own period (see `fsd.evaluation.contrasts`).
        state: "fsd", or "calibrated" for the audit of a fine-tuned model.
    """

    detector: str
    auc: Estimate
    blind: Estimate | None
    reason: str = ""
    contemporaries: bool = False
    state: str = "fsd"

    @property
    def explains(self) -> bool:
        """Whether the blind classifier explains the result (see `fsd.evaluation.audit.explains`)."""
        return explains(self.blind, self.auc)

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        if self.explains or self.contemporaries or self.state != "fsd":
            return self._finding
        return (
            f"{self._finding}; that benchmark has no contemporaries (non-members of the members' own period), so texts "
            "of that period which the model never read may be called members more often"
        )

    @property
    def _finding(self) -> str:
        if self.blind is None:
            return f"no blind classifier could be trained on the adapter's benchmark ({self.reason})"
        reached = (
            f"a blind classifier, which never sees the model, reaches {self.blind} on the adapter's benchmark, "
            f"{self.detector} {'FSD' if self.state == 'fsd' else self.state} {self.auc}"
        )
        if self.explains:
            return f"{reached}: that benchmark cannot show membership"
        if self.blind.low > 0.5:
            return f"{reached}: part of the result may be the difference between members and non-members"
        return reached

    def to_json(self) -> str:
        """The summary as JSON text; `explains` and `sentence` are for readers, and are derived again on reading."""
        values = {**vars(self), "explains": self.explains, "sentence": self.sentence}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "AuditSummary":
        """The inverse of `to_json`.

        Raises:
            UsageError: if the text is not a summary.
        """
        try:
            values = json.loads(text)
            blind = values["blind"]
            return cls(
                detector=str(values["detector"]),
                auc=Estimate(*map(float, values["auc"])),
                blind=None if blind is None else Estimate(*map(float, blind)),
                reason=str(values["reason"]),
                contemporaries=bool(values.get("contemporaries", False)),
                state=str(values.get("state", "fsd")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"audit must be JSON written by this program; got {error}") from error
