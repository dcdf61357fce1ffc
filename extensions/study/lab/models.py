"""Models that the targets of a laboratory share: what they continue, and what they are compared with.

- `before`: the weights that the target was continued from, the best reference there can be;
- `earlier`: an earlier checkpoint, with training on other texts in between;
- `smaller`: half as wide and half as deep, trained on the background from another seed;
- `ordinary`: of the size of the target, trained on other texts.

All have the tokenizer of the target. Beside a real model there are the first two alone.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from extensions.study.docstrings import docstring_paragraphs
from extensions.study.lab.settings import Reference
from fsd.api import (
    LanguageModel,
    ModelConfig,
    Passage,
    Recipe,
    content_hash,
    continue_pretraining,
    count,
    load_tokenizer,
    pretrain,
    resolve_precision,
)
from fsd.api import load_model as load
from pipelines.api import experiment, new_folder

TINY = Recipe(hidden_size=64, layers=2, heads=2, vocabulary=1024, context=256, passes=2, learning_rate=3e-3)
LARGE = Recipe(hidden_size=256, layers=10, heads=8, passes=2, learning_rate=1e-3)
SIZES = {"tiny": TINY, "1M": Recipe(passes=2), "8M": LARGE}
BACKGROUND = "background"
CONTINUED = "continued"
SMALLER = "smaller"
ORDINARY = "ordinary"
FREQUENCIES = "frequencies"
TABLE = "frequencies.npz"
# How a real model is trained further.
BASE_RECIPE = Recipe(context=256, batch_size=8, learning_rate=5e-5)


@dataclass(frozen=True)
class Base:
    """A real model that targets continue, as `recipe` says; `bfloat16` rounds the factors of matrix products."""

    model: str
    fingerprint: str
    dtype: str = "bfloat16"
    method: str = "full"
    chats: Literal["", "answers", "whole"] = ""
    """What targets learn of chats, if there are any."""
    recipe: Recipe = BASE_RECIPE

    @classmethod
    def of(cls, model: str, rate: float | None, **options: Any) -> "Base":
        """The model of a name; the usual rate is that of all weights, or of an adapter."""
        usual = 5e-4 if options.get("method") == "lora" else BASE_RECIPE.learning_rate
        recipe = replace(BASE_RECIPE, learning_rate=rate or usual)
        return cls(model, experiment.weights_of(model), recipe=recipe, **options)

    @property
    def name(self) -> str:
        """What its targets are labelled with."""
        name = Path(self.model).stem
        if self.method == "lora":
            name += " by lora"
        if self.chats:
            name += f" on {self.chats}"
        return name


@dataclass(frozen=True)
class Lab:
    """What all targets of a laboratory share."""

    size: str
    """Of the small models; with a base, its name."""
    background: tuple[str, ...]
    other_texts: tuple[str, ...]
    """Paragraphs that are no background: what an ordinary reference, or a checkpoint in between, is trained on."""
    models: Path
    """Folder of the models that targets share."""
    base: Base | None = None
    continued: bool = False
    """Whether targets continue a model that was trained on other texts since the `earlier` checkpoint."""

    @property
    def start(self) -> str:
        """The model that targets continue."""
        if self.continued:
            return str(self.models / CONTINUED)
        return self.checkpoint

    @property
    def checkpoint(self) -> str:
        """The model that everything began with."""
        return self.base.model if self.base else str(self.models / BACKGROUND)

    @property
    def precision(self) -> AbstractContextManager[object]:
        """The context of all computations; weights change, so that rounded ones must not be kept."""
        if self.base is None or self.base.dtype == "float32":
            return nullcontext()
        return torch.autocast(resolve_precision(ModelConfig())[0].type, torch.bfloat16, cache_enabled=False)

    def reference(self, name: Reference) -> str:
        """The model that is the reference of a name."""
        if name == "before":
            return self.start
        if name == "earlier":
            return self.checkpoint
        return str(self.models / name)

    def model(self, reference: Reference) -> ModelConfig:
        """What a target is loaded and scored with."""
        config = ModelConfig(
            self.start,
            reference_model=self.reference(reference),
            # Rounded weights would lose the small steps of the training; `precision` rounds their products.
            dtype="float32",
            frequencies=str(self.models / FREQUENCIES / TABLE),
            cache="none",
        )
        if self.base:
            return replace(config, cache=str(self.models), chats=self.base.chats or config.chats)
        return replace(config, device="cpu")


def shared(
    folder: Path,
    packages: Sequence[str],
    paragraphs: int,
    base: Base | None,
    size: str = "",
    *,
    continued: bool = False,
) -> Lab:
    """What targets share: background, base or size, and where their models are."""
    background = tuple(docstring_paragraphs(packages=packages, limit=paragraphs, seed=0))
    taken = set(background)
    further = docstring_paragraphs(packages=packages, limit=paragraphs, seed=1)
    # Neither the rate nor the method of a base moves the statistics of its unchanged model, which are kept there.
    origin = [base.fingerprint, base.dtype] if base else asdict(SIZES[size])
    content = experiment.tag([origin, list(map(content_hash, background))])
    other_texts = tuple(text for text in further if text not in taken)
    return Lab(
        size=base.name if base else size,
        background=background,
        other_texts=other_texts,
        models=folder / f"models-{content}",
        base=base,
        continued=continued,
    )


def train(lab: Lab, wanted: Collection[str]) -> None:
    """Make the models that cells share, and the table of token frequencies, unless that is done."""
    needed = {FREQUENCIES, *wanted}
    if not lab.base:
        needed.add(BACKGROUND)
    if lab.continued:
        needed.add(CONTINUED)
    for name in (BACKGROUND, CONTINUED, SMALLER, ORDINARY, FREQUENCIES):
        path = lab.models / name
        if name in needed and not path.exists():
            # The folder appears when it is complete, so that an interrupted call leaves no half of it.
            with new_folder(path) as folder:
                _make(lab, name, folder)


def _make(lab: Lab, name: str, folder: Path) -> None:
    if name == FREQUENCIES:
        tokenizer, vocabulary = load_tokenizer(lab.checkpoint)
        table = count(map(Passage, lab.background), tokenizer, vocabulary, model="lab", corpus="background")
        table.save(folder / TABLE)
        return
    model = _continued(lab) if name == CONTINUED else _pretrained(lab, name)
    model.base.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _pretrained(lab: Lab, name: str) -> LanguageModel:
    """A model from scratch: that of the background, which has the tokenizer of all, or one beside it."""
    recipe = replace(SIZES[lab.size], exposures=0)
    if name == BACKGROUND:
        return pretrain([], lab.background, recipe, device="cpu")
    texts = lab.other_texts
    if name == SMALLER:
        texts = lab.background
        halved = {size: getattr(recipe, size) // 2 for size in ("hidden_size", "layers", "heads")}
        recipe = replace(recipe, **halved)
    seed = {SMALLER: 1000, ORDINARY: 2000}[name]
    tokenizer, _ = load_tokenizer(lab.checkpoint)
    return pretrain([], texts, replace(recipe, seed=seed), tokenizer=tokenizer, device="cpu")


def _continued(lab: Lab) -> LanguageModel:
    model = load(replace(lab, continued=False).model("before"))
    recipe = lab.base.recipe if lab.base else replace(SIZES[lab.size], exposures=0)
    with lab.precision:
        continue_pretraining(model, lab.other_texts[:250], recipe, bar_shown=False)
    return model
