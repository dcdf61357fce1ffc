"""Power and false alarms of canaries, extraction, adapter audits and data-set tests, on models whose data is known.

    python -m benchmarks.evidence --seeds 3

pretrains one small model per seed on background text, with canaries and passages read 0, 1, 2, 4, 8, 16 and 32 times,
and prints Markdown tables. Three seeds take about ten minutes on two cores.
"""

import argparse
import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig, Recipe
from fsd.data.docstrings import docstring_paragraphs
from fsd.data.embedded import corpus
from fsd.data.splitting import split_labelled
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.dataset_inference import dataset_verdict
from fsd.evidence.dataset_tests import exchangeability
from fsd.models import language_model
from fsd.models.adapters import detach
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel
from fsd.models.pretraining import pretrain
from fsd.scoring.deviation import evaluate, usable
from fsd.scoring.scorers import build_scorers
from fsd.views import ViewInputs
from pipelines import adapter_audit
from pipelines.canary import files, make, scoring
from pipelines.common.detection import cheap, load_detectors
from pipelines.extract import works

LEVELS = (0, 1, 2, 4, 8, 16, 32)
DOCUMENTS, PASSAGES = 15, 8
ALPHA = 0.05
SETTINGS = ModelConfig(cache="none")


def table(headings: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    print("\n| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
    for line in lines:
        print("| " + " | ".join(map(str, line)) + " |")
    print(flush=True)


def write(path: Path, texts: Sequence[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def pretrained(seed: int, folder: Path) -> tuple[LanguageModel, dict[int, files.Canaries], dict[int, list[str]]]:
    """A model, the canaries that it read by number of times, and the passages likewise."""
    abstracts = [document.text for document in corpus()]
    random.Random(seed).shuffle(abstracts)
    words = write(folder / "words.jsonl", abstracts)
    canaries, passages, members = {}, {}, []
    for at, level in enumerate(LEVELS):
        documents = abstracts[at * DOCUMENTS : (at + 1) * DOCUMENTS]
        out = folder / f"canaries-{level}"
        data = write(folder / f"documents-{level}.jsonl", documents)
        config = make.MakeConfig((data,), str(out), variants=200, alpha=0.005, words=(words,), seed=f"{seed}/{level}")
        make.main(config)
        canaries[level] = files.read(out)
        published = [json.loads(line)["text"] for line in (out / files.PUBLISHED).read_text().splitlines()]
        first = len(LEVELS) * DOCUMENTS + at * PASSAGES
        passages[level] = abstracts[first : first + PASSAGES]
        members += (published + passages[level]) * level
    recipe = Recipe(exposures=1, seed=seed)
    return pretrain(members, docstring_paragraphs(limit=4000, seed=seed), recipe), canaries, passages


def canaries_and_extraction(seeds: int) -> None:
    found: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    combined: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    log_p: defaultdict[int, list[float]] = defaultdict(list)
    detectors = load_detectors(DetectorConfig(detectors="loss,min_k_pp"))
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as scratch:
            model, canaries, passages = pretrained(seed, Path(scratch))
        scorers = {"base": build_scorers(model, SETTINGS)["base"]}
        for level in LEVELS:
            scores = scoring.score(canaries[level], detectors, scorers, seed=seed)
            for detector in detectors:
                found[detector.name, level] += scoring.rank_p_values(scores, detector.name).tolist()
                combined[detector.name, level].append(scoring.levels(scores, detector.name, alpha=ALPHA)[-1].p)
            cut = works.cut(["read"], [" ".join(passages[level])], model.tokens, works.Windows(20, 20, 5))
            (extraction,) = works.by_model(cut, model, [works.PLAIN], shown=False)
            log_p[level] += extraction.work.log_p.tolist()
    print(f"Canaries: {seeds} models, {DOCUMENTS} documents a level and model, 200 variants each, 8 rare words.")
    lines = []
    for (name, level), p in sorted(found.items()):
        share = observed_rate(np.array(p) <= ALPHA)
        several = ", ".join(f"{value:.2g}" for value in combined[name, level])
        lines.append([name, level, f"{np.median(p):.3f}", share, several])
    table(["detector", "times read", "median p", "found at p ≤ .05", "combined p of each model"], lines)
    print("Extraction: passages of 20 + 20 tokens.")
    lines = []
    for level, values in log_p.items():
        above = [f"{np.mean(np.array(values) >= math.log(p)):.1%}" for p in (0.001, 0.01, 0.5)]
        lines.append([level, len(values), f"{np.median(values) / math.log(10):.1f}", *above])
    table(["times read", "passages", "median log10 p", "p ≥ .1 %", "p ≥ 1 %", "p ≥ 50 %"], lines)


def adapter_audits() -> None:
    others = [document for document in corpus() if not document.member]
    half = len(others) // 2
    documents = [replace(document, member=at < half) for at, document in enumerate(others)]
    config = adapter_audit.AuditConfig(model=SETTINGS, detection=DetectorConfig(detectors="loss,min_k,min_k_pp"))
    parts = split_labelled(documents, validation=config.validation, seed=0)
    model = language_model.load(SETTINGS)
    lines = []
    for epochs in range(6):
        if epochs:
            training = AdapterConfig(epochs=epochs, learning_rate=3e-3, batch_size=4)
            finetune(model, [d.text for d in documents if d.member], training, seed=0, shown=False)
        scorers = build_scorers(model, SETTINGS)
        scorers["tuned"] = scorers["tuned" if epochs else "base"]
        results = adapter_audit.judge(parts, [], scorers, config)
        lines += [[epochs, *row] for row in adapter_audit.rows(results.table, results.calibration.detector)]
        detach(model)
    print(
        "Adapter audits: LoRA (learning rate 3e-3, batches of 4) on half of the embedded non-members; none at 0 epochs."
    )
    table(["epochs", *adapter_audit.HEADINGS], lines)


def data_sets(draws: int) -> None:
    """False alarms on sets that the embedded model did not read, and power on the one that it did."""
    documents = list(corpus())
    texts = [document.text for document in documents]
    member = np.array([bool(document.member) for document in documents])
    model = language_model.load(SETTINGS)
    scorers = build_scorers(model, SETTINGS)
    scorers.pop("tuned")
    plain = [d for d in cheap(load_detectors(DetectorConfig())) if not d.paired]
    computable, _ = usable(plain, texts, scorers, ViewInputs())
    scores = evaluate(texts, computable, scorers).base
    rng = np.random.default_rng(0)
    non = np.flatnonzero(~member)

    def p_of(suspect: np.ndarray, known: np.ndarray) -> float:
        sides = ({name: column[side] for name, column in scores.items()} for side in (suspect, known))
        return float(dataset_verdict(*sides, permutations=199, seed=int(rng.integers(2**31))).p or 0)

    null, power = [], []
    for _ in range(draws):
        order = rng.permutation(non)
        null.append(p_of(order[:60], order[60:120]))
        power.append(p_of(rng.permutation(np.flatnonzero(member))[:60], order[60:120]))
    ordered = []
    for draw in range(max(20, draws // 10)):
        part = [texts[at] for at in rng.permutation(non)[:30]]
        ordered.append(exchangeability(part, scorers["base"], orders=9, seed=draw)[0])
    print(f"Data sets: p ≤ .05 over random draws of the embedded corpus ({draws} draws, 60 texts a side).")
    lines = [
        ["dataset inference", "never read", observed_rate(np.array(null) <= ALPHA)],
        ["dataset inference", "read twice", observed_rate(np.array(power) <= ALPHA)],
        [
            "exchangeability",
            f"never read in any order ({len(ordered)} draws)",
            observed_rate(np.array(ordered) <= ALPHA),
        ],
    ]
    table(["test", "set", "p ≤ .05"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="models to pretrain")
    parser.add_argument("--draws", type=int, default=200, help="random draws of data sets")
    arguments = parser.parse_args()
    data_sets(arguments.draws)
    adapter_audits()
    canaries_and_extraction(arguments.seeds)


if __name__ == "__main__":
    main()
