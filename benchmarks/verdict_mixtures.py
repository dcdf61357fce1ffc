"""False-positive rate of verdicts on mixtures of texts of several kinds: python -m benchmarks.verdict_mixtures --help.

The embedded model is fine-tuned on some embedded non-members, as by pipelines.fsd, and texts of many kinds are scored
once: the embedded corpus by field, docstrings of installed packages, and, if the folder --data has them, WikiMIA (old
and new articles of four lengths) and ArxivMIA (by field). The model saw none of them except the embedded members.

For each mixture, one kind gives the calibration non-members and the greater part of the texts to be judged, and another
kind the rest of these. The detector is chosen on the calibration texts and on embedded members, so that it is often one
that separates the kinds: the hardest case for an error rate that is promised for non-members. Every text called a
member is then a false positive. Rows with members add embedded members to embedded non-members.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data import embedded
from fsd.data.docstrings import docstring_paragraphs
from fsd.evaluation.calibration import TOLERANCE, Calibration, calibrate
from fsd.evaluation.domain_check import DomainCheck
from fsd.evaluation.exchangeability import exchangeability
from fsd.evaluation.metrics import auc
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.scoring.job import prepare
from fsd.token_stats import IntArray
from pipelines.common.detection import load_detectors

DETECTORS = "dc_pdd,loss,min_k,min_k_deviation,min_k_pp,perplexity,surp,zlib"
"""Detectors that need one forward pass over each text."""

BANDS = ((0.0, 0.0), (0.05, 0.1), (0.2, 0.3), (0.5, 0.5), (0.9, 1.0))
"""Shares of texts of the other kind; each mixture draws one end of a band."""


@dataclass(frozen=True)
class Settings:
    """Texts, mixtures and rates."""

    data: str | None = None
    """Folder with wikimia_{32,64,128,256}.jsonl and arxiv_mia_dev.jsonl; without it, embedded texts and docstrings."""
    texts: int = 150
    """Largest number of texts of each kind."""
    mixtures: int = 50
    """Number of random mixtures in each row."""
    calibration: tuple[int, ...] = (25, 42, 80)
    """Numbers of calibration texts, one of which is drawn for each mixture."""
    asked: tuple[int, ...] = (10, 40, 120)
    """Numbers of texts to be judged, one of which is drawn for each mixture."""
    fpr: tuple[float, ...] = (0.05, 0.1)
    """Promised false-positive rates."""
    seed: int = 0
    """Random seed for texts, fine-tuning and mixtures."""
    scores: str | None = None
    """Parquet file to save the scores to, or to load them from if it exists."""


def read(settings: Settings) -> pd.DataFrame:
    """Texts with their kind, whether they are members, and an article that only one of them may come from."""
    rows = [
        {"text": d["text"], "member": bool(d["label"]), "kind": f"embedded {d['field'].split('.')[0]}"}
        for d in map(json.loads, embedded.CORPUS.read_text(encoding="utf-8").splitlines())
    ]
    paragraphs = docstring_paragraphs(limit=settings.texts, seed=settings.seed)
    rows += [{"text": text, "member": False, "kind": "docstrings"} for text in paragraphs]
    folder = Path(settings.data) if settings.data else None
    for length in (32, 64, 128, 256) if folder else ():
        for row in _lines(folder, f"wikimia_{length}.jsonl"):
            kind = f"wikipedia {'old' if row['label'] else 'new'} {length}"
            rows.append({"text": row["input"], "member": False, "kind": kind})
    for row in _lines(folder, "arxiv_mia_dev.jsonl"):
        rows.append({"text": row["text"], "member": False, "kind": f"arxiv {row['field']}"})
    table = pd.DataFrame(rows)
    shuffled = table.sample(frac=1.0, random_state=settings.seed)
    capped = shuffled.groupby(shuffled["kind"].where(~shuffled["kind"].str.startswith("embedded"), "embedded"))
    outside = capped.cumcount() < settings.texts
    return table[table["kind"].str.startswith("embedded") | outside.reindex(table.index)].reset_index(drop=True)


def _lines(folder: Path | None, name: str) -> Iterator[dict[str, Any]]:
    if folder and (folder / name).exists():
        yield from map(json.loads, (folder / name).read_text(encoding="utf-8").splitlines())


def score(settings: Settings) -> pd.DataFrame:
    """The texts with their FSD by each detector; `unseen` are those used for fine-tuning."""
    if settings.scores and Path(settings.scores).exists():
        return pd.read_parquet(settings.scores)
    table = read(settings)
    rng = np.random.default_rng(settings.seed)
    outside = np.flatnonzero(table["kind"].str.startswith("embedded") & ~table["member"])
    table["unseen"] = np.isin(np.arange(len(table)), rng.choice(outside, round(0.3 * outside.size), replace=False))
    config, training = ModelConfig(model="embedded"), AdapterConfig()
    model = language_model.load(config)
    texts, unseen = table["text"].tolist(), table["text"][table["unseen"]].tolist()
    chosen = load_detectors(DetectorConfig(detectors=DETECTORS))
    job = prepare(model, texts, unseen, chosen, config, training=training, strict=False, shots=4, seed=settings.seed)
    finetune(model, unseen, training, seed=settings.seed, log=lambda *_: None)
    for name, column in job.score().fsd.items():
        table[name] = column
    if settings.scores:
        table.to_parquet(settings.scores)
    return table


def kinds(table: pd.DataFrame, rng: np.random.Generator) -> dict[str, IntArray]:
    """Non-members of each kind with enough of them; of the embedded corpus also those of two halves of its fields."""
    known = table[~table["unseen"] & ~table["member"]]
    fields = rng.permutation(known["kind"][known["kind"].str.startswith("embedded")].unique())
    half = np.where(known["kind"].isin(fields[::2]), "embedded fields A", "embedded fields B")
    named = known["kind"].where(~known["kind"].str.startswith("embedded"), half)
    found = {str(name): rows.index.to_numpy() for name, rows in known.groupby(named)}
    found["embedded"] = known.index[known["kind"].str.startswith("embedded")].to_numpy()
    arxiv = known.index[known["kind"].str.startswith("arxiv")].to_numpy()
    if arxiv.size:
        found["arxiv"] = arxiv
    return {name: rows for name, rows in found.items() if rows.size >= 50}


def take(table: pd.DataFrame, pool: IntArray, count: int, used: set[str], rng: np.random.Generator) -> list[int]:
    """Random texts of a pool, no two of which begin alike: WikiMIA has its articles in several lengths."""
    taken: list[int] = []
    for at in rng.permutation(pool).tolist():
        beginning = table["text"][at][:60]
        if len(taken) < count and beginning not in used:
            used.add(beginning)
            taken.append(at)
    return taken


def calibrated(table: pd.DataFrame, known: Sequence[int], members: Sequence[int]) -> Calibration:
    """Calibration by the detector with the highest AUC between the members and the calibration texts."""
    rows = table.loc[[*members, *known]]
    labels = np.arange(len(rows)) < len(members)
    scores = {name: rows[name].to_numpy(np.float64) for name in DETECTORS.split(",")}
    best = max(scores, key=lambda name: auc(labels, scores[name]))
    return calibrate(labels.tolist(), scores, rows["text"].tolist(), detector=best)


def mixture(
    table: pd.DataFrame, pools: dict[str, IntArray], share: float, members: float, settings: Settings, seed: int
) -> dict[str, float]:
    """One mixture: shares of its non-members that are called members, and whether verdicts are given."""
    rng = np.random.default_rng([settings.seed, seed])
    embedded_members = table.index[table["member"]].to_numpy()
    kind = "embedded" if members else str(rng.choice(list(pools)))
    other = str(rng.choice([name for name in pools if name != kind]))
    used: set[str] = set()
    known = take(table, pools[kind], min(int(rng.choice(settings.calibration)), pools[kind].size // 2), used, rng)
    size = int(rng.choice(settings.asked))
    guests = take(table, embedded_members, round(members * size), used, rng)
    shifted = take(table, pools[other], round(share * (size - len(guests))), used, rng)
    same = take(table, pools[kind], size - len(guests) - len(shifted), used, rng)
    calibration = calibrated(table, known, take(table, embedded_members, 42, used, rng))
    texts = table["text"].to_numpy()
    asked = np.array([*same, *shifted, *guests], dtype=np.int64)
    check = DomainCheck(calibration.texts, background=texts[table["unseen"]].tolist())
    novelty = check.p_values(texts[asked].tolist())
    test = exchangeability(check, texts[asked].tolist(), novelty=novelty, seed=seed)
    inside = novelty > check.limit
    judged = inside & (not test.rejected)
    p_values = calibration.p_values({c.detector: table[c.detector].to_numpy()[asked] for c in calibration.candidates})
    others = np.arange(asked.size) < len(same) + len(shifted)
    ordinary = np.arange(asked.size) < len(same)
    values = {"refused": float(test.rejected), "outside": float((~inside[ordinary]).mean()) if same else np.nan}
    for fpr in settings.fpr:
        called = p_values <= fpr + TOLERANCE
        most = calibration.false_alarms(fpr, int(others.sum()))
        values |= {
            f"unchecked {fpr}": float(called[others].mean()),
            f"called {fpr}": float((called & judged)[others].mean()),
            f"excess {fpr}": float((called & judged)[others].sum() > most),
        }
    return values


def report(name: str, rows: Sequence[dict[str, float]], settings: Settings) -> None:
    table = pd.DataFrame(rows)
    cells = [f"{int(table['refused'].sum())} of {len(table)}", f"{table['outside'].mean():.3f}".replace("nan", "–")]
    for fpr in settings.fpr:
        called = table[f"called {fpr}"]
        half = 1.96 * called.sem()
        interval = f"[{max(0.0, called.mean() - half):.3f}, {called.mean() + half:.3f}]"
        cells += [
            f"{table[f'unchecked {fpr}'].mean():.3f}",
            f"{called.mean():.3f} {interval}",
            f"{int(table[f'excess {fpr}'].sum())}",
        ]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(settings: Settings) -> None:
    start = time.perf_counter()
    table = score(settings)
    pools = kinds(table, np.random.default_rng(settings.seed))
    print(f"{len(table)} texts; non-members: {', '.join(f'{name} {rows.size}' for name, rows in pools.items())}")
    head = " | ".join(f"unchecked {fpr} | called {fpr} | above chance" for fpr in settings.fpr)
    print(f"\n| texts to be judged | no verdict | outside | {head} |\n|{'---|' * (3 + 3 * len(settings.fpr))}")
    seed = 0
    for members, band in [*((0.0, band) for band in BANDS), (0.5, (0.0, 0.0)), (0.5, (0.2, 0.3))]:
        rows = []
        for _ in range(settings.mixtures):
            seed += 1
            share = band[seed % 2]
            rows.append(mixture(table, pools, share, members, settings, seed))
            if sys.stderr.isatty():
                print(f"\r{seed} mixtures, {time.perf_counter() - start:.0f} s", end="", file=sys.stderr, flush=True)
        low, high = (f"{100 * end:.0f}" for end in band)
        another = "none" if band == (0.0, 0.0) else f"{low} %" if low == high else f"{low} or {high} %"
        report(f"{another} of another kind" + (", half members" if members else ""), rows, settings)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
