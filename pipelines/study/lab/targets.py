"""One cell of the laboratory: a target reads its members, and every score of its texts is computed.

All targets continue one model that was pretrained on the background alone, so that the targets of a corpus differ in
nothing but what they read: `exposures` copies of each member, shuffled with some of the background. The control of a
seed, the target of the cells with 0 exposures, read that background and nothing else: members and contemporaries do not
differ there, and whatever a score shows between older and later texts is a difference of the texts. The reference model
is, as in practice, a smaller one with the same tokenizer, pretrained on the background from another seed.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import AdapterConfig, ModelConfig, Recipe
from fsd.data.documents import content_hash

if TYPE_CHECKING:
    import pandas as pd

    from fsd.models.language_model import LanguageModel

READ_WITH = 250
"""Paragraphs of the background that the members are shuffled with."""
REFERENCE_SEED = 1000


@dataclass(frozen=True)
class Cell:
    """A target and its texts.

    Attributes:
        corpus: name of the corpus.
        size: name of the recipe.
        exposures: number of times that the target reads each member; 0 for the control.
        seed: of the draw of the members, the order of training, and the adapter.
        members: read by the target, unless `exposures` is 0.
        contemporaries: of the same period, never read.
        later: of a later period, never read.
        unseen: later ones that the adapter is trained on; () if the corpus has no later texts and no others to spare.
        family: number of the family in the corpus of each member, contemporary and later text, in this order.
        recipe: architecture and training of the target.
        background: read by every target.
        folder: holds the models that cells share, and the finished cells.
        code: hash of the code that computes a cell.
    """

    corpus: str
    size: str
    exposures: int
    seed: int
    members: tuple[str, ...]
    contemporaries: tuple[str, ...]
    later: tuple[str, ...]
    unseen: tuple[str, ...]
    family: tuple[int, ...]
    recipe: Recipe
    background: tuple[str, ...]
    folder: Path
    code: str

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.corpus}, {self.exposures} exposures, seed {self.seed}"

    @property
    def key(self) -> str:
        """SHA-256 of everything that the scores depend on."""
        texts = [self.members, self.contemporaries, self.later, self.unseen]
        hashes = [sorted(map(content_hash, side)) for side in texts]
        return _hash([self.shared_key, self.exposures, self.seed, hashes, asdict(AdapterConfig())])

    @property
    def shared_key(self) -> str:
        """SHA-256 of everything that the model pretrained on the background depends on."""
        recipe = asdict(replace(self.recipe, exposures=0))
        return _hash([recipe, [content_hash(text) for text in self.background], self.code])

    @property
    def file(self) -> Path:
        """Where the finished cell is."""
        return self.folder / f"{self.key}.parquet"


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def one_thread() -> None:
    """Let a worker compute on one core, since there is one worker a core."""
    import torch

    os.environ["OMP_WAIT_POLICY"] = "passive"
    torch.set_num_threads(1)


def run_cell(cell: Cell) -> Cell:
    """Compute a cell and store it, unless it is there."""
    if not cell.file.exists():
        table = compute(cell)
        draft = cell.file.with_suffix(f".{os.getpid()}")
        table.to_parquet(draft, index=False)
        draft.replace(cell.file)
    return cell


def compute(cell: Cell) -> "pd.DataFrame":
    """Scores of the texts of a cell: `kind`, `text` (its hash) and a column a score.

    `recall` and `neighbour`, which take several further passes over each text, are left out.

    Raises:
        UsageError: if a training does not converge.
    """
    import pandas as pd

    import detectors
    from fsd.data.streaming import Passage
    from fsd.models.finetuning import finetune
    from fsd.scoring.deviation import evaluate
    from fsd.scoring.model_scorer import ModelScorer
    from fsd.scoring.token_counting import count
    from fsd.scoring.token_frequencies import unigram_scorer
    from fsd.token_stats import Scorer
    from fsd.views import usable

    target = _continued(cell, cell.members) if cell.exposures else _control(cell)
    texts = [*cell.members, *cell.contemporaries, *cell.later]
    vocabulary = target.base.config.vocab_size
    table = count(map(Passage, cell.background), target.tokenizer, vocabulary, model="lab", corpus="background")
    scorers: dict[str, Scorer] = {
        "base": ModelScorer(target),
        "tuned": ModelScorer(target, tuned=True),
        "reference": ModelScorer(_load(reference_model(cell))),
        "unigram": unigram_scorer(table, target.tokens),
    }
    computable, _ = usable([detectors.load(name) for name in detectors.names()], texts, scorers)
    finetune(target, cell.unseen, AdapterConfig(), seed=cell.seed, shown=False)
    frame = evaluate(texts, computable, scorers).frame()
    sides = {"member": cell.members, "contemporary": cell.contemporaries, "later": cell.later}
    kind = [name for name, side in sides.items() for _ in side]
    return pd.concat([pd.DataFrame({"kind": kind, "text": [content_hash(text) for text in texts]}), frame], axis=1)


def background_model(cell: Cell) -> Path:
    """Folder of the model pretrained on the background alone, which is trained if it is not there."""
    from fsd.models.pretraining import pretrain

    folder = cell.folder / f"background-{cell.shared_key}"
    if not folder.exists():
        _save(pretrain([], cell.background, replace(cell.recipe, exposures=0), device="cpu"), folder)
    return folder


def reference_model(cell: Cell) -> Path:
    """Folder of the reference model, which is trained if it is not there: half as wide and half as deep."""
    from fsd.models.pretraining import pretrain

    folder = cell.folder / f"reference-{cell.shared_key}"
    if not folder.exists():
        recipe = replace(
            cell.recipe,
            hidden_size=cell.recipe.hidden_size // 2,
            layers=cell.recipe.layers // 2,
            heads=cell.recipe.heads // 2,
            exposures=0,
            seed=REFERENCE_SEED,
        )
        tokenizer = _load(background_model(cell)).tokenizer
        _save(pretrain([], cell.background, recipe, tokenizer=tokenizer, device="cpu"), folder)
    return folder


def _load(folder: Path) -> "LanguageModel":
    from fsd.models import language_model

    return language_model.load(ModelConfig(model=str(folder), device="cpu", dtype="float32", cache="none"))


def _save(model: "LanguageModel", folder: Path) -> None:
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.base.save_pretrained(draft)
    model.tokenizer.save_pretrained(draft)
    try:
        draft.replace(folder)
    except OSError:  # another worker was first
        shutil.rmtree(draft)


def _control(cell: Cell) -> "LanguageModel":
    """The model of a seed that read the background alone, and as much of it as the targets."""
    folder = cell.folder / f"control-{cell.shared_key}-{cell.seed}"
    if not folder.exists():
        _save(_continued(cell, ()), folder)
    return _load(folder)


def _continued(cell: Cell, members: Sequence[str]) -> "LanguageModel":
    """The background model after the members and some of the background."""
    from fsd.models.pretraining import continue_pretraining

    recipe = replace(cell.recipe, seed=cell.seed)
    more = random.Random(cell.seed).sample(cell.background, min(READ_WITH, len(cell.background)))
    model = _load(background_model(cell))
    continue_pretraining(model, [*members] * cell.exposures + more, recipe, shown=False)
    return model
