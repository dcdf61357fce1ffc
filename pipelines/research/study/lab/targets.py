"""One cell of the laboratory: a target is trained on its members, and every score of its texts is computed.

All targets continue one model that was pretrained on the background alone, so that the targets of a corpus differ in
nothing but what they are trained on: `exposures` copies of each member, shuffled with some of the background. The
control of a seed, the target with 0 exposures, is trained on that background and nothing else: members and
contemporaries do not differ there, and whatever a score shows between older and later texts is a difference of the
texts. The reference model is, as in practice, a smaller one with the same tokenizer, pretrained on the background from
another seed.

Given a real model as base, all targets continue that one. Unchanged, it is the control and the reference.
"""

import multiprocessing
import os
import random
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from fsd.config import AdapterConfig, FSDConfig, ModelConfig, Recipe
from fsd.data.docstrings import docstring_paragraphs
from fsd.data.documents import Document, content_hash
from fsd.data.readers import Passage
from fsd.data.splitting import MEMBER, Split
from fsd.models.language_model import (
    LanguageModel,
    load,
    load_tokenizer,
    torch_device,
)
from fsd.models.pretraining import continue_pretraining, pretrain
from fsd.net.hub import fingerprint, locate
from fsd.progress import progress
from fsd.scoring.scorers import TABLE
from fsd.scoring.token_counting import count
from pipelines.common import detector_settings, experiment
from pipelines.common.output import new_folder, write_table
from pipelines.research.study.lab.corpora import UNSEEN, Sides

SIZES = {
    "tiny": Recipe(
        hidden_size=64,
        layers=2,
        heads=2,
        vocabulary=1024,
        context=256,
        passes=2,
        learning_rate=3e-3,
    ),
    "1M": Recipe(passes=2),
    "8M": Recipe(hidden_size=256, layers=10, heads=8, passes=2, learning_rate=1e-3),
}
# How a real model is trained further.
BASE_RECIPE = Recipe(context=256, batch_size=8, learning_rate=5e-5)
# Learning rate of an adapter in place of all weights.
LORA_RATE = 5e-4
# Cells after which a worker is replaced, since its memory grows; with a base after each.
TASKS = 8
# Paragraphs of the background that the members are shuffled with, and those of a real model.
TRAINED_WITH = 250
BASE_TRAINED_WITH = 125
REFERENCE_SEED = 1000
BACKGROUND = "background"
REFERENCE = "reference"


@dataclass(frozen=True)
class Base:
    """A real model that targets continue, as `recipe` says; `bfloat16` rounds the factors of matrix products."""

    model: str
    fingerprint: str
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    method: Literal["full", "lora"] = "full"
    recipe: Recipe = BASE_RECIPE

    @classmethod
    def of(cls, model: str, rate: float | None, **options: Any) -> "Base":
        """The model of a name; the usual rate is that of all weights, or of an adapter."""
        usual = LORA_RATE if options.get("method") == "lora" else BASE_RECIPE.learning_rate
        recipe = replace(BASE_RECIPE, learning_rate=rate or usual)
        return cls(model, fingerprint(locate(model)[0]), recipe=recipe, **options)

    @property
    def name(self) -> str:
        """What its targets are labelled with."""
        stem = Path(self.model).stem
        return f"{stem} by lora" if self.method == "lora" else stem


@dataclass(frozen=True)
class Cell:
    """A target and its texts; the seed is that of the draw of the members, the order of training, and the adapter."""

    corpus: str
    size: str
    exposures: int
    seed: int
    sides: Sides
    background: tuple[str, ...]
    models: Path
    """Folder of the models that cells share."""
    base: Base | None = None
    """In place of the small models, whose size `size` is otherwise."""

    @property
    def labels(self) -> dict[str, str | int]:
        """What its scores are labelled with."""
        return {
            "corpus": self.corpus,
            "size": self.size,
            "exposures": self.exposures,
            "seed": self.seed,
        }

    @property
    def precision(self) -> AbstractContextManager[object]:
        """The context of all its computations; weights change, so that rounded ones must not be kept."""
        if self.base is None or self.base.dtype == "float32":
            return nullcontext()
        return torch.autocast(torch_device("auto").type, torch.bfloat16, cache_enabled=False)

    @property
    def config(self) -> FSDConfig:
        """What its target is loaded and scored with."""
        if self.base:
            model = ModelConfig(
                self.base.model,
                reference_model=self.base.model,
                # Rounded weights would lose the small steps of the training; `precision` rounds their products.
                dtype="float32",
                frequencies=str(self.models / TABLE),
                cache=str(self.models),
            )
        else:
            model = ModelConfig(
                str(self.models / BACKGROUND),
                reference_model=str(self.models / REFERENCE),
                device="cpu",
                dtype="float32",
                cache="none",
            )
        return FSDConfig(model=model, seed=self.seed)

    @property
    def file(self) -> Path:
        """Where the finished cell is, and will be found again."""
        hashes = [sorted(map(content_hash, side.texts)) for side in self.sides.values()]
        content = [
            self.models.name,
            self.exposures,
            self.seed,
            hashes,
            asdict(AdapterConfig()),
        ]
        if self.base:
            content.append(asdict(self.base))
        return self.models.with_name(f"{experiment.tag(content)}.parquet")


def shared(
    folder: Path,
    packages: Sequence[str],
    paragraphs: int,
    base: Base | None,
    size: str = "",
) -> dict[str, Any]:
    """What cells share: background, base or size, and where their models are; of a base the frequencies alone."""
    background = tuple(docstring_paragraphs(packages=packages, limit=paragraphs, seed=0))
    # Neither the rate nor the method of a base moves the statistics of its unchanged model, which are kept there.
    origin = [base.fingerprint, base.dtype] if base else asdict(SIZES[size])
    models = folder / f"models-{experiment.tag([origin, list(map(content_hash, background))])}"
    return {
        "size": base.name if base else size,
        "background": background,
        "models": models,
        "base": base,
    }


def compute(cells: Sequence[Cell], workers: int) -> None:
    """Compute the cells that no earlier call has finished, side by side."""
    missing = [cell for cell in cells if not cell.file.exists()]
    with progress(len(cells), "lab", "cell") as bar:
        bar.update(len(cells) - len(missing))
        if not missing:
            return
        # A forked worker would share locks with the threads of torch.
        spawn = multiprocessing.get_context("spawn")
        tasks = 1 if missing[0].base else TASKS
        with spawn.Pool(min(workers, len(missing)), start_worker, maxtasksperchild=tasks) as pool:  # ends them too
            # Once, before the cells, all of which read them.
            pool.apply(train_shared_models, (missing[0],))
            for _ in pool.imap_unordered(run_cell, missing):
                bar.update(1)


def start_worker() -> None:
    """Let a worker compute on one core, since there is one worker a core, and draw no progress bars of its own."""
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def train_shared_models(cell: Cell) -> None:
    """Train the models that cells share, unless they are there: of the background alone, and a smaller reference."""
    if cell.models.exists():
        return
    # The folder appears when it is complete, so that an interrupted call leaves no half of it.
    with new_folder(cell.models) as folder:
        if cell.base:
            tokenizer, vocabulary = load_tokenizer(cell.base.model)
            _save_frequencies(cell, tokenizer, vocabulary, folder)
            return
        recipe = replace(SIZES[cell.size], exposures=0)
        model = pretrain([], cell.background, recipe, device="cpu")
        tokenizer = model.tokenizer
        smaller = replace(
            recipe,
            hidden_size=recipe.hidden_size // 2,
            layers=recipe.layers // 2,
            heads=recipe.heads // 2,
            seed=REFERENCE_SEED,
        )
        reference = pretrain([], cell.background, smaller, tokenizer=tokenizer, device="cpu")
        for name, trained in ((BACKGROUND, model), (REFERENCE, reference)):
            trained.base.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        _save_frequencies(cell, tokenizer, len(tokenizer), folder / BACKGROUND)


def _save_frequencies(cell: Cell, tokenizer: Any, vocabulary: int, folder: Path) -> None:
    """Count the tokens of the background."""
    table = count(
        map(Passage, cell.background),
        tokenizer,
        vocabulary,
        model="lab",
        corpus="background",
    )
    table.save(folder / TABLE)


def run_cell(cell: Cell) -> None:
    """Store the scores of the texts of a cell."""
    with cell.precision:
        write_table(scores(cell, trained(cell)), cell.file)


def trained(cell: Cell, more: Sequence[str] = ()) -> LanguageModel:
    """The target of a cell, trained on `more` texts too; a real model of 0 exposures is the unchanged one."""
    base = cell.base
    target = load(cell.config.model)
    if base and not cell.exposures:
        return target
    rng = random.Random(cell.seed)
    texts = cell.sides[MEMBER].texts * cell.exposures
    texts += more
    texts += rng.sample(
        cell.background,
        min(BASE_TRAINED_WITH if base else TRAINED_WITH, len(cell.background)),
    )
    recipe = replace(base.recipe if base else SIZES[cell.size], seed=cell.seed)
    lora = AdapterConfig() if base and base.method == "lora" else None
    continue_pretraining(target, texts, recipe, lora=lora, shown=False)
    return target


def scores(cell: Cell, target: LanguageModel) -> pd.DataFrame:
    """`kind` and `text` (its hash) of each text of a cell, and a column a score; the target keeps the adapter.

    `recall` and `neighbour`, which take several further passes over each text, are left out, and for a real model
    `lowercase`, which takes one. The unchanged one is scored once: its numbers are kept beside the models.
    """
    detectors = detector_settings.cheap(detector_settings.load_detectors(cell.config.detection))
    if cell.base:
        detectors = [detector for detector in detectors if "lower" not in detector.views]
    documents: list[Document] = []
    rows = []
    for kind, side in cell.sides.items():
        if kind != UNSEEN:
            documents += side
            rows += [{"kind": kind, "text": content_hash(document.text)} for document in side]
    split = Split(cell.sides[UNSEEN], (), documents)
    _, scored = experiment.measure(target, split, detectors, cell.config, None)
    return pd.concat([pd.DataFrame(rows), scored.frame()], axis=1)
