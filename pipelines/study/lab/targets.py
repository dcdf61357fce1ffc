"""One cell of the laboratory: a target is trained on its members, and every score of its texts is computed.

All targets continue one model that was pretrained on the background alone, so that the targets of a corpus differ in
nothing but what they are trained on: `exposures` copies of each member, shuffled with some of the background. The
control of a seed, the target with 0 exposures, is trained on that background and nothing else: members and
contemporaries do not differ there, and whatever a score shows between older and later texts is a difference of the
texts. The reference model is, as in practice, a smaller one with the same tokenizer, pretrained on the background from
another seed.
"""

import os
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import AdapterConfig, FSDConfig, ModelConfig, Recipe
from fsd.data.documents import content_hash
from fsd.data.splitting import Split
from pipelines.common import experiment
from pipelines.common.output import new_folder, write_table
from pipelines.study.lab.corpora import Sides

if TYPE_CHECKING:
    import pandas as pd

SIZES = {
    "tiny": Recipe(hidden_size=64, layers=2, heads=2, vocabulary=1024, context=256, passes=2, learning_rate=3e-3),
    "1M": Recipe(passes=2),
    "8M": Recipe(hidden_size=256, layers=10, heads=8, passes=2, learning_rate=1e-3),
}
TRAINED_WITH = 250
"""Paragraphs of the background that the members are shuffled with."""
REFERENCE_SEED = 1000
BACKGROUND, REFERENCE = "background", "reference"


@dataclass(frozen=True)
class Cell:
    """A target and its texts; the seed is that of the draw of the members, the order of training, and the adapter."""

    corpus: str
    size: str
    exposures: int
    seed: int
    sides: Sides
    background: tuple[str, ...]
    folder: Path
    """Holds the models that cells share, and the finished cells."""

    @property
    def labels(self) -> dict[str, str | int]:
        """What its scores are labelled with."""
        return {"corpus": self.corpus, "size": self.size, "exposures": self.exposures, "seed": self.seed}

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.corpus}, {self.exposures} exposures, seed {self.seed}"

    @property
    def models(self) -> Path:
        """Folder of the models that cells share."""
        texts = [content_hash(text) for text in self.background]
        return self.folder / f"models-{experiment.tag([asdict(SIZES[self.size]), texts])}"

    @property
    def key(self) -> str:
        """Tag by which the finished cell is found."""
        hashes = [sorted(content_hash(document.text) for document in side) for side in self.sides[:4]]
        return experiment.tag([self.models.name, self.exposures, self.seed, hashes, asdict(AdapterConfig())])

    @property
    def file(self) -> Path:
        """Where the finished cell is."""
        return self.folder / f"{self.key}.parquet"

    def scores(self) -> "pd.DataFrame":
        """The scores of a finished cell, with its labels and the family of each text."""
        import pandas as pd

        return pd.read_parquet(self.file).assign(**self.labels, family=self.sides.family)


def start_worker() -> None:
    """Let a worker compute on one core, since there is one worker a core, and draw no progress bars of its own."""
    import torch

    os.environ["OMP_WAIT_POLICY"] = "passive"
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def train_shared_models(cell: Cell) -> None:
    """Train the models that cells share, unless they are there: of the background alone, and a smaller reference."""
    from fsd.data.readers import Passage
    from fsd.models.pretraining import pretrain
    from fsd.scoring.model import TABLE
    from fsd.scoring.token_frequencies import count

    if cell.models.exists():
        return
    recipe = replace(SIZES[cell.size], exposures=0)
    half = {name: getattr(recipe, name) // 2 for name in ("hidden_size", "layers", "heads")}
    smaller = replace(recipe, **half, seed=REFERENCE_SEED)
    with new_folder(cell.models) as folder:
        background = pretrain([], cell.background, recipe, device="cpu")
        tokenizer = background.tokenizer
        reference = pretrain([], cell.background, smaller, tokenizer=tokenizer, device="cpu")
        for name, model in ((BACKGROUND, background), (REFERENCE, reference)):
            model.base.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
        table = count(map(Passage, cell.background), tokenizer, len(tokenizer), model="lab", corpus="background")
        table.save(folder / BACKGROUND / TABLE)


def run_cell(cell: Cell) -> None:
    """Compute a cell and store it."""
    write_table(compute(cell), cell.file)


def compute(cell: Cell) -> "pd.DataFrame":
    """Scores of the texts of a cell: `kind`, `text` (its hash) and a column a score.

    `recall` and `neighbour`, which take several further passes over each text, are left out.
    """
    import pandas as pd

    from fsd.models.pretraining import continue_pretraining
    from pipelines.common.experiment import cheap, load_detectors

    folder, sides = cell.models, cell.sides
    reference = str(folder / REFERENCE)
    model = ModelConfig(
        str(folder / BACKGROUND), reference_model=reference, device="cpu", dtype="float32", cache="none"
    )
    config = FSDConfig(model=model, seed=cell.seed)
    target = experiment.load_model(config)
    texts = [document.text for document in sides.members] * cell.exposures
    texts += random.Random(cell.seed).sample(cell.background, min(TRAINED_WITH, len(cell.background)))
    continue_pretraining(target, texts, replace(SIZES[cell.size], seed=cell.seed), shown=False)
    split = Split(sides.unseen, (), sides.scored)
    _, deviation = experiment.measure(target, split, cheap(load_detectors(config.detection)), config, None)
    of_texts = {"kind": sides.kinds, "text": [content_hash(document.text) for document in sides.scored]}
    return pd.concat([pd.DataFrame(of_texts), deviation.frame()], axis=1)
