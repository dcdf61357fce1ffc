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

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from fsd.config import Columns, OptionalModel, OptionalPaths, Recipe
from fsd.errors import UsageError, at_least
from pipelines.common.cli import command
from pipelines.common.job import TOKEN, Job, files, pretraining, show, stage
from pipelines.common.output import check_new_folder, new_folder

if TYPE_CHECKING:
    from fsd.data.documents import Document

TARGET, CONTEMPORARY_TWIN, TEXTS = "target", "contemporary-twin", "texts.jsonl"
"""What --hold-out writes to the folder."""
OLDER, LATER = "older", "later"
"""Periods of members and of rows labelled 0 whose file names none."""


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
    from fsd.data.splitting import with_periods
    from fsd.models.pretraining import check_recipe

    recipe = config.recipe
    check_recipe(recipe)
    check_new_folder(Path(config.out))
    (members, held_out, others), background = read_texts(config)
    documents = [
        replace(document, member=member, period=document.period or period)
        for side, member, period in ((members, True, OLDER), (held_out, False, OLDER), (others, False, LATER))
        for document in side
    ]
    sides = [[document.text for document in side] for side in (members, held_out)][: 2 if held_out else 1]
    steps = [(len(side) * recipe.exposures + len(background) * recipe.passes) / recipe.batch_size for side in sides]
    characters = [recipe.exposures * sum(map(len, side)) + recipe.passes * sum(map(len, background)) for side in sides]
    return Job(
        partial(run, config, sides, background, with_periods(documents, None) if held_out else []),
        {
            "members": files(config.members or ["the embedded corpus"], len(members)),
            **({"held out": f"{len(held_out):,} members, for the contemporary twin"} if held_out else {}),
            "background": files(config.background or ["docstrings"], len(background)),
            "training steps": f"{' and '.join(f'{math.ceil(n):,}' for n in steps)} of {recipe.batch_size} texts",
            **pretraining(recipe, sum(characters) / TOKEN),
        },
        writes=[config.out],
    )


def read_texts(config: PretrainConfig) -> "tuple[tuple[list[Document], list[Document], list[Document]], list[str]]":
    """The members to train on, those held out and rows labelled 0; and the background."""
    from fsd.data import embedded
    from fsd.data.docstrings import docstring_paragraphs
    from fsd.data.near_duplicates import refuse_copies
    from fsd.data.readers import parse_columns, read_files
    from fsd.data.splitting import hold_out

    at_least(1, paragraphs=config.paragraphs)
    if not 0 <= config.hold_out < 1:
        raise UsageError(f"hold-out must be a share from 0 to below 1; got {config.hold_out}")
    if config.hold_out and not config.recipe.exposures:
        raise UsageError(f"exposures must be above 0 with --hold-out {config.hold_out}, so that the other half is read")
    columns = parse_columns(config.columns)
    documents = read_files(config.members, columns) if config.members else list(embedded.corpus())
    members = [document for document in documents if document.member is not False]
    others = [document for document in documents if document.member is False]
    if not members and config.recipe.exposures:
        raise UsageError(
            f"members must hold texts that are not labelled 0; all {len(documents)} rows of "
            f"{', '.join(config.members)} are"
        )
    sides = (*hold_out(members, config.hold_out, seed=config.recipe.seed), others)
    if not config.background:
        return sides, docstring_paragraphs(limit=config.paragraphs, seed=config.recipe.seed)
    background = read_files(config.background, columns)
    refuse_copies(documents, background)
    return sides, [document.text for document in background]


def run(
    config: PretrainConfig, sides: Sequence[Sequence[str]], background: Sequence[str], documents: "Sequence[Document]"
) -> None:
    """Pretrain a model, or the target and its contemporary twin, whose texts are written with their labels."""
    from fsd.models.language_model import load_tokenizer
    from fsd.reporting.report import Report

    # the folder before the training: one that cannot be written fails early
    with stage("training"), new_folder(Path(config.out)) as folder:
        tokenizer = load_tokenizer(config.tokenizer)[0] if config.tokenizer else None
        if len(sides) == 1:
            summary = _train(config, sides[0], background, folder, tokenizer)
        else:
            target = _train(config, sides[0], background, folder / TARGET, tokenizer)
            twin = _train(config, sides[1], background, folder / CONTEMPORARY_TWIN, tokenizer)
            summary = f"target: {target}; contemporary twin: {twin}"
            rows = (
                {"text": document.text, "label": int(bool(document.member)), "period": document.period}
                | ({"group": document.group} if document.group else {})
                | ({"date": document.date.isoformat()} if document.date else {})
                for document in documents
            )
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / TEXTS).write_text(lines, encoding="utf-8")
    show(Report(headline=summary, files={"model": Path(config.out)}))


def _train(
    config: PretrainConfig, members: Sequence[str], background: Sequence[str], folder: Path, tokenizer: Any
) -> str:
    """Pretrain one model, write it with its tokenizer, token-frequency table and card, and return a summary."""
    from fsd.data.docstrings import PACKAGES
    from fsd.data.readers import Passage
    from fsd.models.pretraining import pretrain
    from fsd.net.hub import fingerprint
    from fsd.scoring.token_frequencies import count

    recipe, device = config.recipe, config.device
    losses: list[float] = []
    model = pretrain(
        members, background, recipe, tokenizer=tokenizer, device=device, log=lambda loss, _: losses.append(loss)
    )
    parameters, vocabulary = sum(p.numel() for p in model.base.parameters()), model.base.config.vocab_size
    model.base.half().save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    table = count(map(Passage, background), model.tokenizer, vocabulary, model=folder.name, corpus="its own background")
    table.save(folder / "frequencies.npz")
    packages = {f"docstrings of {p}": version("scikit-learn" if p == "sklearn" else p) for p in PACKAGES}
    last = fmean(losses[-20:])
    card = {
        "recipe": asdict(recipe),
        "members": {"texts": len(members), "exposures": recipe.exposures, "sha256": _digest(members)},
        "background": {
            "texts": len(background),
            "passes": recipe.passes,
            "sha256": _digest(background),
            "source": "files" if config.background else packages,
        },
        "tokenizer": config.tokenizer or "trained on the background",
        "parameters": parameters,
        "steps": len(losses),
        "loss": {
            "first": losses[0],
            "last_20_steps": last,
            "every_20_steps": [round(fmean(losses[i : i + 20]), 4) for i in range(0, len(losses), 20)],
        },
        "fingerprint": fingerprint(folder),
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    return f"{parameters:,} parameters, last loss {last:.3f} nats a token"


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(hashlib.sha256(t.encode()).hexdigest() for t in texts)).encode()).hexdigest()


if __name__ == "__main__":
    command(PretrainConfig, prepare, __doc__ or "", stages={"data": "settings and texts", "training": "training"})
