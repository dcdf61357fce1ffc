"""Five tasks of lm-evaluation-harness, one of them leaked to a model: python -m benchmarks.tasks --help.

Each file gives a task of its own form, half of its texts as test and half as training split. The model is trained
further on the rendered questions and answers of the first task, in their published order, and every test is asked of
every task. Needs the extra `lm-eval`; offline. CPU time is printed, because wall time depends on other work.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import tyro
import yaml

import detectors
from extensions.contamination.dataset import inference_test
from extensions.contamination.dataset_tests import BREAK, exchangeability
from extensions.overlap.overlap import overlap
from fsd.config import AdapterConfig, ModelConfig
from fsd.data.corpus import Corpus
from fsd.data.documents import Document, cut
from fsd.data.passages import Passage
from fsd.data.readers import read_files, read_texts
from fsd.data.related import without_related
from fsd.models.finetuning import finetune
from fsd.reporting.report import p_value
from fsd.scoring.model import Model, open_model
from fsd.scoring.scorers import STATES
from fsd.statistics.intervals import shortened

FORMS = (
    {"output_type": "generate_until", "doc_to_text": "Begin: {{begin}}\nContinue:", "doc_to_target": "end"},
    {"output_type": "multiple_choice", "doc_to_text": "{{begin}}", "doc_to_choice": "ends", "doc_to_target": "right"},
    {"output_type": "loglikelihood", "doc_to_text": "{{begin}}", "doc_to_target": " {{end}}"},
    {"output_type": "multiple_choice", "doc_to_text": "Text: {{begin}}\nNext:", "doc_to_choice": "ends",
     "doc_to_target": "right"},
    {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{begin}} {{end}}"},
)  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """Leak one of several tasks to a model, and look for leaks in all."""

    data: tuple[str, ...]
    """Files with texts, NAME=FILE or NAME=FILE:COLUMN, one task each; the first is leaked."""
    model: str = "smollm2"
    """Model to train further."""
    texts: int = 40
    """Texts of a task, half of them its test split."""
    words: int = 30
    """Words of a text, half of them the question."""
    shard: int = 4
    """Consecutive texts of a shard."""
    orders: int = 9
    """Random orders of a shard."""
    epochs: int = 6
    """Passes over the leaked task."""
    seed: int = 0
    """Random seed."""


def declare(folder: Path, name: str, form: dict[str, str], texts: Sequence[str], words: int) -> str:
    """Write a task with its files; gives its entry."""
    halves = [(cut(text, words // 2), cut(text, words)[len(cut(text, words // 2)) :].strip()) for text in texts]
    rows = [
        {"begin": begin, "end": end, "right": at % 4, "ends": [halves[(at + other - at % 4) % len(halves)][1]
                                                               for other in range(4)]}
        for at, (begin, end) in enumerate(halves)
    ]  # fmt: skip
    half = len(rows) // 2
    files = {}
    for split, part in (("test", rows[:half]), ("train", rows[half:])):
        files[split] = str(folder / f"{name}-{split}.jsonl")
        Path(files[split]).write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    declared = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files}}
    declared |= {"test_split": "test", "training_split": "train", **form}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(declared), encoding="utf-8")
    return f"lm-eval:{folder}/{name}.yaml"


def row(name: str, test: Sequence[Document], known: Sequence[Document], model: Model, run: Benchmark, corpus: Path):  # type: ignore[no-untyped-def]
    """What each test says of a task."""
    texts = [document.text for document in test]
    p, z, _ = exchangeability(texts, model.scorers["base"], shard=run.shard, orders=run.orders, seed=run.seed)
    found = [detectors.load(name) for name in ("loss", "min_k", "zlib")]
    scored = model.plan(found, texts + [document.text for document in known]).score()
    inference, verdict = inference_test(Corpus(test), Corpus(known), scored, run.seed)
    passages = [Passage(text) for text in json.loads(corpus.read_text(encoding="utf-8"))]
    shared = list(overlap([Passage(text) for text in texts], passages))
    share = sum(one.found for one in shared) / sum(one.ngrams for one in shared)
    return {
        "task": name,
        "order p": p_value(p),
        "z": f"{z:+.2f}",
        "inference p": p_value(inference.p),
        "difference": inference.statistic.removeprefix("difference "),
        "overlap": shortened(share, ".2f"),
        "blind AUC": str(verdict.blind),
    }


def main() -> None:
    """Make the tasks, leak one, and print the table."""
    run = tyro.cli(Benchmark)
    if not find_spec("lm_eval"):
        print("error: this benchmark must have the extra lm-eval: pip install 'fsd[lm-eval]'", file=sys.stderr)
        sys.exit(2)
    rng, begun = np.random.default_rng(run.seed), time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder, entries = Path(name), {}
        for at, source in enumerate(run.data):
            task, _, place = source.partition("=")
            file, colon, column = place.rpartition(":")
            read = read_texts([file if colon else place], {"text": column} if colon else {})
            long = [text.text for text in read if len(text.text.split()) >= run.words]
            chosen = [long[index] for index in rng.permutation(len(long))[: run.texts]]
            entries[task] = declare(folder, task, FORMS[at % len(FORMS)], chosen, run.words)
        tests = {task: read_files([entry]) for task, entry in entries.items()}
        known = {
            task: without_related(tests[task], read_files([f"{entry}:train"]))[0] for task, entry in entries.items()
        }
        leaked = [document.text for document in next(iter(tests.values()))]
        shards = [BREAK.join(leaked[at : at + run.shard]) for at in range(0, len(leaked), run.shard)]
        (folder / "corpus.json").write_text(json.dumps(shards), encoding="utf-8")
        config = ModelConfig(run.model, cache="none")
        model = open_model(config, states=STATES)
        finetune(model.language_model, shards, AdapterConfig(epochs=run.epochs, batch_size=1), seed=run.seed)
        tuned = replace(model, scorers={"base": model.scorers["tuned"]})
        print(f"trained: {time.process_time() - begun:.0f} s of processor time", flush=True)
        table = [row(task, tests[task], known[task], tuned, run, folder / "corpus.json") for task in entries]
    print(pd.DataFrame(table).to_string(index=False))
    print(f"{time.process_time() - begun:.0f} s of processor time")


if __name__ == "__main__":
    main()
