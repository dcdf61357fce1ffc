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
from fsd.data.documents import content_hash
from fsd.data.readers import Passage
from fsd.data.splitting import MEMBER, Split
from fsd.models.language_model import LanguageModel, load_tokenizer, torch_device
from fsd.models.pretraining import continue_pretraining, pretrain
from fsd.net.hub import fingerprint, locate
from fsd.progress import progress
from fsd.scoring.model import TABLE
from fsd.scoring.token_frequencies import count
from pipelines.common import experiment
from pipelines.common.output import new_folder, write_table
from pipelines.study.lab.corpora import UNSEEN, Sides

SIZES = {
    "tiny": Recipe(hidden_size=64, layers=2, heads=2, vocabulary=1024, context=256, passes=2, learning_rate=3e-3),
    "1M": Recipe(passes=2),
    "8M": Recipe(hidden_size=256, layers=10, heads=8, passes=2, learning_rate=1e-3),
}
BASE_RECIPE = Recipe(context=256, batch_size=8, learning_rate=5e-5)
"""How a real model is trained further."""
LORA_RATE = 5e-4
"""Learning rate of an adapter in place of all weights."""
TASKS = 8
"""Cells after which a worker is replaced, since its memory grows; with a base after each."""
TRAINED_WITH, BASE_TRAINED_WITH = 250, 125
"""Paragraphs of the background that the members are shuffled with, and those of a real model."""
REFERENCE_SEED = 1000
BACKGROUND, REFERENCE = "background", "reference"


@dataclass(frozen=True)
class Base:
    """A real model that targets continue, as `recipe` says; `bfloat16` rounds the factors of matrix products."""

    model: str
    fingerprint: str
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    method: Literal["full", "lora"] = "full"
    recipe: Recipe = BASE_RECIPE

    @classmethod
    def of(cls, model: str, rate: float | None, **how: Any) -> "Base":
        """The model of a name; the usual rate is that of all weights, or of an adapter."""
        usual = LORA_RATE if how.get("method") == "lora" else BASE_RECIPE.learning_rate
        return cls(
            model, fingerprint(locate(model)[0]), recipe=replace(BASE_RECIPE, learning_rate=rate or usual), **how
        )

    @property
    def name(self) -> str:
        """What its targets are labelled with."""
        return Path(self.model).stem + (f" by {self.method}" if self.method == "lora" else "")


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
        return {"corpus": self.corpus, "size": self.size, "exposures": self.exposures, "seed": self.seed}

    @property
    def precision(self) -> AbstractContextManager[object]:
        """The context of all its computations; weights change, so that rounded ones must not be kept."""
        rounded = self.base is not None and self.base.dtype == "bfloat16"
        kind = torch_device("auto").type
        return torch.autocast(kind, torch.bfloat16, cache_enabled=False) if rounded else nullcontext()

    @property
    def config(self) -> FSDConfig:
        """What its target is loaded and scored with."""
        if self.base:
            model = ModelConfig(self.base.model, reference_model=self.base.model, dtype="float32")
            model = replace(model, frequencies=str(self.models / TABLE), cache=str(self.models))
        else:
            background, reference = (str(self.models / name) for name in (BACKGROUND, REFERENCE))
            model = ModelConfig(background, reference_model=reference, device="cpu", dtype="float32", cache="none")
        return FSDConfig(model=model, seed=self.seed)

    @property
    def file(self) -> Path:
        """Where the finished cell is, and will be found again."""
        hashes = [sorted(content_hash(document.text) for document in side) for side in self.sides.values()]
        content = [self.models.name, self.exposures, self.seed, hashes, asdict(AdapterConfig())]
        content += [asdict(self.base)] if self.base else []
        return self.models.with_name(f"{experiment.tag(content)}.parquet")


def shared(folder: Path, packages: Sequence[str], paragraphs: int, base: Base | None, size: str = "") -> dict[str, Any]:
    """What cells share: background, base or size, and where their models are; of a base the frequencies alone."""
    background = tuple(docstring_paragraphs(packages=packages, limit=paragraphs, seed=0))
    first = [base.fingerprint, base.dtype] if base else asdict(SIZES[size])
    models = folder / f"models-{experiment.tag([first, [content_hash(text) for text in background]])}"
    return {"size": base.name if base else size, "background": background, "models": models, "base": base}


def compute(cells: Sequence[Cell], workers: int) -> None:
    """Compute the cells that no earlier call has finished, side by side."""
    missing = [cell for cell in cells if not cell.file.exists()]
    with progress(len(cells), "lab", "cell") as bar:
        bar.update(len(cells) - len(missing))
        if not missing:
            return
        workers, spawn = min(workers, len(missing)), multiprocessing.get_context("spawn")
        tasks = 1 if missing[0].base else TASKS
        with spawn.Pool(workers, start_worker, maxtasksperchild=tasks) as pool:  # its end terminates them
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
    if cell.base:
        tokenizer, vocabulary = load_tokenizer(cell.base.model)
        table = count(map(Passage, cell.background), tokenizer, vocabulary, model="lab", corpus="background")
        with new_folder(cell.models) as folder:
            table.save(folder / TABLE)
        return
    recipe = replace(SIZES[cell.size], exposures=0)
    half = {name: getattr(recipe, name) // 2 for name in ("hidden_size", "layers", "heads")}
    with new_folder(cell.models) as folder:
        model = pretrain([], cell.background, recipe, device="cpu")
        tokenizer = model.tokenizer
        smaller = replace(recipe, **half, seed=REFERENCE_SEED)
        reference = pretrain([], cell.background, smaller, tokenizer=tokenizer, device="cpu")
        for name, trained in ((BACKGROUND, model), (REFERENCE, reference)):
            trained.base.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        table = count(map(Passage, cell.background), tokenizer, len(tokenizer), model="lab", corpus="background")
        table.save(folder / BACKGROUND / TABLE)


def run_cell(cell: Cell) -> None:
    """Store the scores of the texts of a cell."""
    with cell.precision:
        write_table(scores(cell, trained(cell)), cell.file)


def trained(cell: Cell, more: Sequence[str] = ()) -> LanguageModel:
    """The target of a cell, trained on `more` texts too; a real model of 0 exposures is the unchanged one."""
    base = cell.base
    target = experiment.load_model(cell.config)
    if cell.exposures or not base:
        texts = [document.text for document in cell.sides[MEMBER]] * cell.exposures + list(more)
        among = min(BASE_TRAINED_WITH if base else TRAINED_WITH, len(cell.background))
        texts += random.Random(cell.seed).sample(cell.background, among)
        recipe = replace(base.recipe if base else SIZES[cell.size], seed=cell.seed)
        lora = AdapterConfig() if base and base.method == "lora" else None
        continue_pretraining(target, texts, recipe, lora=lora, shown=False)
    return target


def scores(cell: Cell, target: LanguageModel) -> pd.DataFrame:
    """`kind` and `text` (its hash) of each text of a cell, and a column a score; the target keeps the adapter.

    `recall` and `neighbour`, which take several further passes over each text, are left out, and for a real model
    `lowercase`, which takes one. The unchanged one is scored once: its numbers are kept beside the models.
    """
    detectors = experiment.cheap(experiment.load_detectors(cell.config.detection))
    if cell.base:
        detectors = [detector for detector in detectors if "lower" not in detector.views]
    scored = [(kind, document) for kind, side in cell.sides.items() if kind != UNSEEN for document in side]
    split = Split(tuple(cell.sides[UNSEEN]), (), tuple(document for _, document in scored))
    _, deviation = experiment.measure(target, split, detectors, cell.config, None)
    rows = [{"kind": kind, "text": content_hash(document.text)} for kind, document in scored]
    return pd.concat([pd.DataFrame(rows), deviation.frame()], axis=1)
