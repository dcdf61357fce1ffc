"""Pretrain a small model from scratch whose training data, and therefore members, are known.

`fsd pretrain --members FILE --out FOLDER` trains on the members and on background text. It writes a
model folder for `fsd run --model FOLDER` with a card that records the training. Without --background, the
background is the prose in the docstrings of installed packages.

With --hold-out 0.5 half of the members are never seen: contemporaries, which show what a score owes to the period of
the members and not to their having been seen. FOLDER then has a target, its contemporary twin, which saw the other
half, and texts.jsonl with the labels and periods for `fsd run --model FOLDER/target --data FOLDER/texts.jsonl`.

Examples:
    fsd pretrain --out my-model
    fsd pretrain --members corpus.jsonl --background prose.jsonl --out my-model
"""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.api import Columns, ModelConfig, OptionalModel, OptionalPaths, Recipe, UsageError, at_least
from pipelines.api import Job, Stated, check_new_folder, check_parent, command, files, new_folder, show, stage

if TYPE_CHECKING:
    from fsd.api import Document

# Folder of the model that --hold-out compares.
TARGET = "target"
CHARACTERS = 3.0
"""Characters a token, about, of the small vocabularies of models that are pretrained from scratch."""


@dataclass(frozen=True)
class PretrainConfig:
    """Members, background text and output folder."""

    out: Annotated[str, arg(metavar="PATH")]
    """Output folder; must not exist, or be empty."""
    members: OptionalPaths = ()
    """JSONL, CSV or Parquet files; rows labelled 0 are left out. Default: the embedded corpus."""
    columns: Columns = ""
    background: OptionalPaths = ()
    """Files of background text, in the same formats. Default: docstrings of installed packages."""
    paragraphs: int = 4000
    """Number of docstring paragraphs to sample without --background."""
    hold_out: float = 0.0
    """Share of the members, in whole families, that the model is not trained on and its contemporary twin is."""
    tokenizer: OptionalModel = None
    """Model whose tokenizer is used. Default: a new tokenizer, trained on the background."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    recipe: Recipe = field(default_factory=Recipe)


def prepare(config: PretrainConfig) -> Job:
    """Read the texts of one model, or of the target and its contemporary twin."""
    from fsd.api import check_recipe, hold_out, readings

    recipe = config.recipe
    check_recipe(recipe)
    check_new_folder(Path(config.out))
    documents = read_documents(config)
    # A text without a label is a member: most files that are given have members alone.
    read: list[Document] = []
    unread: list[Document] = []
    for document in documents:
        side = unread if document.member is False else read
        side.append(document)
    if not read and recipe.exposures:
        raise UsageError(
            f"members must hold texts that are not labelled 0; all {len(documents)} rows of "
            f"{', '.join(config.members)} are"
        )
    # In whole families: a near-duplicate of a member that is held out would have been read all the same.
    members, held_out = hold_out(read, config.hold_out, seed=recipe.seed)
    background = read_background(config, documents)
    reads = {"members": files(config.members or ["the embedded corpus"], len(members))}
    sides = [members.texts]
    labelled = []
    if held_out:
        reads["held out"] = Stated(f"{len(held_out):,} members, for the contemporary twin", {"texts": len(held_out)})
        sides.append(held_out.texts)
        labelled = label(members, held_out, unread)
    steps = []
    characters = 0
    for texts in sides:
        in_all = readings(len(texts), len(background), recipe)
        steps.append(math.ceil(in_all / recipe.batch_size))
        characters += sum(map(len, texts)) * recipe.exposures + sum(map(len, background)) * recipe.passes
    reads["background"] = files(config.background or ["docstrings"], len(background))
    counts = " and ".join(f"{count:,}" for count in steps)
    reads["training steps"] = Stated(
        f"{counts} of {recipe.batch_size} texts", {"of_each_model": steps, "texts_a_step": recipe.batch_size}
    )
    # Before the tokenizer is trained, only the characters can be counted.
    reads |= announced(recipe, characters / CHARACTERS)
    work = partial(run, config, sides, background, labelled)
    return Job(work, reads, writes=[config.out], checks=[partial(check, config)])


def announced(recipe: Recipe, tokens: float) -> dict[str, Stated]:
    """Size of a model that is pretrained from scratch, and what it is trained on, over all passes and models."""
    # Twelve square matrices a layer (four of the attention, eight of the feed-forward part), and one that both embeds
    # tokens and predicts them.
    count = 12 * recipe.layers * recipe.hidden_size**2 + recipe.vocabulary * recipe.hidden_size
    return {
        "model": Stated(f"about {count:,} parameters, from scratch", {"parameters": count}),
        "tokens": Stated(f"about {tokens:,.0f} to train on", {"training": round(tokens)}),
    }


def check(config: PretrainConfig) -> None:
    """Refuse a device or a tokenizer that is none, and a folder that cannot be made."""
    from fsd.api import check_tokenizer_located, resolve_precision

    check_parent(Path(config.out))
    resolve_precision(ModelConfig(device=config.device))
    if config.tokenizer:
        check_tokenizer_located(config.tokenizer)


def read_documents(config: PretrainConfig) -> "list[Document]":
    """The rows of the files of members, those labelled 0 among them."""
    from fsd.api import embedded, parse_columns, read_files

    at_least(1, paragraphs=config.paragraphs)
    if not 0 <= config.hold_out < 1:
        raise UsageError(f"hold-out must be a share from 0 to below 1; got {config.hold_out}")
    if config.hold_out and not config.recipe.exposures:
        raise UsageError(f"exposures must be above 0 with --hold-out {config.hold_out}, so that the other half is read")
    if not config.members:
        return list(embedded.corpus())
    return read_files(config.members, parse_columns(config.columns))


def read_background(config: PretrainConfig, documents: "Sequence[Document]") -> list[str]:
    """The texts of the background, none of which may be one of the documents."""
    from extensions.study.docstrings import docstring_paragraphs
    from fsd.api import Corpus, parse_columns, read_files, refuse_copies

    if not config.background:
        return docstring_paragraphs(limit=config.paragraphs, seed=config.recipe.seed)
    background = Corpus(read_files(config.background, parse_columns(config.columns)))
    # A copy in the background would be read by the twin as well, and a non-member by both.
    refuse_copies(documents, background)
    return background.texts


def label(
    members: "Sequence[Document]", held_out: "Sequence[Document]", nonmembers: "Sequence[Document]"
) -> "list[Document]":
    """The documents with the labels that hold for the target, and with periods where they have none."""
    from fsd.api import with_periods

    # Those held out are contemporaries, on which the comparison rests.
    sides = ((members, True, "older"), (held_out, False, "older"), (nonmembers, False, "later"))
    documents = []
    for side, member, period in sides:
        documents += [replace(document, member=member, period=document.period or period) for document in side]
    return with_periods(documents, None)


def run(
    config: PretrainConfig, sides: Sequence[Sequence[str]], background: Sequence[str], documents: "Sequence[Document]"
) -> None:
    """Pretrain a model, or the target and its contemporary twin, whose texts are written with their labels."""
    from fsd.api import Report, json_line

    model = Path(config.out)
    texts = model / "texts.jsonl"
    commands = []
    # The folder before the training: one that cannot be written fails early.
    with stage("training"), new_folder(model) as folder:
        if len(sides) == 1:
            summary = _train(config, background, sides[0], folder)
        else:
            # The same recipe and seed: the two differ in the half of the members that they read, and in nothing else.
            target = _train(config, background, sides[0], folder / TARGET)
            twin = _train(config, background, sides[1], folder / "contemporary-twin")
            summary = f"target: {target}; contemporary twin: {twin}"
            (folder / texts.name).write_bytes(b"".join(map(json_line, documents)))
            model /= TARGET
            commands.append(shlex.join(["fsd", "run", "--model", str(model), "--data", str(texts)]))
    show(Report(headline=summary, files={"model": model}, next=commands))


def _train(config: PretrainConfig, background: Sequence[str], members: Sequence[str], folder: Path) -> str:
    """Pretrain one model, write it with its tokenizer, token-frequency table and card, and return a summary."""
    from extensions.study.docstrings import PACKAGES
    from fsd.api import Passage, count, fingerprint, load_tokenizer, pretrain

    recipe = config.recipe
    losses: list[float] = []
    tokenizer = load_tokenizer(config.tokenizer)[0] if config.tokenizer else None
    model = pretrain(
        members, background, recipe, tokenizer=tokenizer, device=config.device, log=lambda loss, _: losses.append(loss)
    )
    parameters = model.base.num_parameters()
    # The card and the scores are those of the weights as they are read again, in half precision.
    model.base.half().save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    # Of the background alone: frequencies in the members would tell which texts these are.
    size = model.base.config.vocab_size
    passages = map(Passage, background)
    table = count(passages, model.tokenizer, size, model=folder.name, corpus="its own background")
    table.save(folder / "frequencies.npz")
    source: object = "files"
    if not config.background:
        # The docstrings of another version are other texts. sklearn is installed as scikit-learn.
        source = {f"docstrings of {name}": version(name.replace("sklearn", "scikit-learn")) for name in PACKAGES}
    # A single batch is noisy.
    final = fmean(losses[-20:])
    curve = [round(fmean(losses[step : step + 20]), 4) for step in range(0, len(losses), 20)]
    # In the order in which a reader asks: what was trained, on what, and how it went.
    card = {
        "recipe": asdict(recipe),
        "members": _described(members, exposures=recipe.exposures),
        "background": _described(background, passes=recipe.passes) | {"source": source},
        "tokenizer": config.tokenizer or "trained on the background",
        "parameters": parameters,
        "steps": len(losses),
        "loss": {"first": losses[0], "last_20_steps": final, "every_20_steps": curve},
        "fingerprint": fingerprint(folder),
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    return f"{parameters:,} parameters, last loss {final:.3f} nats a token"


def _described(texts: Sequence[str], **repeats: int) -> dict[str, object]:
    """Number and hash of texts, as the card has them, and how often they were read."""
    from fsd.api import content_hash

    # Sorted, as the order of the texts is that of the training alone, which the seed decides.
    digest = content_hash("\n".join(sorted(map(content_hash, texts))))
    return {"texts": len(texts), **repeats, "sha256": digest}


if __name__ == "__main__":
    command(PretrainConfig, prepare, __doc__, stages={"data": "settings and texts", "training": "training"})
