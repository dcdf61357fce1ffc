"""What does an altered text count as? python -m benchmarks.edited_texts --help.

A target is the embedded twin, trained further on texts of one source and, in capitals, of another. Its audit compares
it with the twin, and is calibrated on non-members of the first source. It judges texts of that source after edits that
keep the words: unread ones, of which none should be called, and members. Of each request, half are edited by one edit.

"outside" is the share of edited texts that the domain check recognises, "unchecked" the share called at the promised
rate without any check, "called" the share called with the check, "refused" the share of requests without any verdict.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import tyro

import detectors
from benchmarks.verdict_mixtures.targets import sources
from fsd.config import ModelConfig, Recipe
from fsd.data.documents import Document
from fsd.models import language_model
from fsd.models.language_model import LanguageModel
from fsd.models.pretraining import continue_pretraining
from fsd.scores import IN_AUDIT, ScoreColumns
from fsd.scoring.model import Model
from fsd.scoring.model_scorer import ModelScorer, hidden_states
from fsd.statistics.intervals import observed_rate
from fsd.text_audit.writing import edited
from fsd.verdicts.calibration import TOLERANCE, calibrate
from fsd.verdicts.domain_check import Reference, trial
from fsd.verdicts.verdicts import MEMBER, OUT_OF_DOMAIN, Rules, VerdictMaker
from pipelines.experiment.detector_settings import for_adapter_audit

DETECTORS = ("loss", "min_k", "wbc")
COPIES = 3
"""Number of times that the target reads each of its texts."""
MEMBERS, CALIBRATED, KNOWN = 100, 43, 43
"""Texts that are read, non-members that calibrate, and further non-members of the benchmark."""
REQUEST = 40
"""Texts of a request."""


@dataclass(frozen=True)
class Settings:
    """Sources, texts and rates."""

    data: str | None = None
    """Folder with a JSONL file for each further source (column text)."""
    source: str = "abstracts"
    """Source that the target is trained on, and that calibrates the audit."""
    capitals: str = "articles"
    """Source that the target reads in capitals."""
    paraphrases: str | None = str(Path(__file__).parent / "paraphrases.jsonl")
    """JSONL file with text and paraphrase of some texts of the source, half of which are made members."""
    fpr: float = 0.05
    """Promised false-positive rate."""
    members: int = MEMBERS
    """Number of texts that the target reads, and of unread ones that are judged."""
    capital_texts: int = 1000
    """Largest number of texts that the target reads in capitals."""
    edits: tuple[str, ...] = ()
    """Names of the edits to judge, as the table has them; without any, all."""
    seed: int = 0
    """Random seed of all draws."""


@dataclass(frozen=True)
class Audit:
    """A calibrated audit of a target."""

    judge: VerdictMaker
    base: LanguageModel
    target: LanguageModel

    def scores(self, texts: Sequence[str]) -> ScoreColumns:
        """(N,) scores, higher = more likely read by the target."""
        return audit_scores(self.base, self.target, texts)


def audit_scores(base: LanguageModel, target: LanguageModel, texts: Sequence[str]) -> ScoreColumns:
    """(N,) scores of the target minus those of its base."""
    scorers = {"base": ModelScorer(base), "tuned": ModelScorer(target)}
    model = Model(ModelConfig(base.identity.id), scorers).audited()
    chosen = for_adapter_audit([detectors.load(name) for name in DETECTORS])
    columns = model.plan(chosen, list(texts)).score().columns
    return {score: column for score, column in columns.items() if score.state == IN_AUDIT.difference}


def audit_of(members: Sequence[str], nonmembers: Sequence[str], loud: Sequence[str], seed: int) -> Audit:
    """Train the target, and calibrate its audit on the first non-members; the others are known to the check."""
    config = ModelConfig(model="embedded-twin", device="cpu", dtype="float32", cache="none")
    base = language_model.load(config)
    target = language_model.load(config)
    read = [*members, *(text.upper() for text in loud)]
    continue_pretraining(target, read * COPIES, Recipe(seed=seed), bar_shown=False)
    compared = [*members, *nonmembers[:CALIBRATED]]
    label = [True] * len(members) + [False] * CALIBRATED
    numbers = tuple(range(len(nonmembers)))
    reference = Reference(tuple(nonmembers), numbers, ("",) * len(nonmembers), {})
    reference = trial(reference, states=partial(hidden_states, base)).added_to(reference)
    is_test = np.arange(len(label)) % 2 == 1
    calibration = calibrate(label, audit_scores(base, target, compared), reference=reference, is_test=is_test)
    return Audit(VerdictMaker(calibration, partial(hidden_states, base)), base, target)


def measure(
    audit: Audit, name: str, changed: Sequence[str], plain: Sequence[str], settings: Settings
) -> dict[str, object]:
    """One row: what the edited texts count as, alone and as half of requests beside plain unread texts."""
    judge = audit.judge
    scores = audit.scores(changed)
    unchecked = judge.calibration.p_values(scores[judge.calibration.score]) <= settings.fpr + TOLERANCE
    requests = []
    half = REQUEST // 2
    for begin in range(0, len(changed) - half + 1, half):
        texts = [*changed[begin : begin + half], *random.Random(begin).sample(list(plain), half)]
        documents = [Document(text, None, group=str(number)) for number, text in enumerate(texts)]
        all_scores = audit.scores(texts)
        verdicts = judge.classify(
            documents,
            lambda rows, of_all=all_scores: {score: column[rows] for score, column in of_all.items()},
            Rules(settings.fpr),
        )
        requests.append(verdicts.table["verdict"].to_numpy()[:half])
    table = np.stack(requests)
    answered = ~np.isin(table, ["no verdict", OUT_OF_DOMAIN]).all(axis=1)
    called = table == MEMBER
    return {
        "text": name,
        "texts": len(changed),
        "outside": (table == OUT_OF_DOMAIN).mean(),
        "unchecked": observed_rate(unchecked),
        "refused": 1 - answered.mean(),
        "called": observed_rate(called.ravel()),
    }


def paraphrased(settings: Settings) -> dict[str, str]:
    """Text → its paraphrase."""
    if not settings.paraphrases:
        return {}
    lines = Path(settings.paraphrases).read_text(encoding="utf-8").splitlines()
    return {row["text"]: row["paraphrase"] for row in map(json.loads, lines)}


def main(settings: Settings) -> None:
    """Train, calibrate, edit, judge, print."""
    texts = sources(settings.data, {settings.source, settings.capitals})
    rewritten = paraphrased(settings)
    own = texts[settings.source]
    # those with a paraphrase are on both sides, and do not calibrate
    first = [text for text in own if text in rewritten]
    rest = [text for text in own if text not in rewritten]
    read = first[::2]
    unread = first[1::2]
    members = [*read, *rest][: settings.members]
    rest = [text for text in rest if text not in members]
    nonmembers = rest[: CALIBRATED + KNOWN]
    asked = [*unread, *rest[CALIBRATED + KNOWN :]][: settings.members]
    loud = texts[settings.capitals][: settings.capital_texts]
    audit = audit_of(members, nonmembers, loud, settings.seed)
    rows = []
    for side, side_texts in (("unread", asked), ("member", members)):
        variants = {"as it is": list(side_texts), "cut to two thirds": [two_thirds(text) for text in side_texts]}
        variants |= edited(side_texts)
        variants["paraphrased"] = [rewritten[text] for text in side_texts if text in rewritten]
        for name in settings.edits or variants:
            changed = variants[name]
            if len(changed) >= REQUEST // 2:
                rows.append(measure(audit, f"{side}, {name}", changed, asked, settings))
    report(pd.DataFrame(rows))


def two_thirds(text: str) -> str:
    """The first two thirds of the words."""
    words = text.split()
    return " ".join(words[: round(len(words) * 2 / 3)])


def report(table: pd.DataFrame) -> None:
    """Print the table."""
    print("| text | texts | outside | unchecked | refused | called |\n|---|" + "---:|" * 5)
    for row in table.itertuples():
        rates = [f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]" for rate in (row.unchecked, row.called)]
        print(f"| {row.text} | {row.texts} | {row.outside:.2f} | {rates[0]} | {row.refused:.2f} | {rates[1]} |")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
