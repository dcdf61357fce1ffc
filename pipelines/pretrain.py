"""Pretrain a small model from scratch whose training data, and therefore members, are known.

`python -m pipelines.pretrain --members FILE --out FOLDER` trains on the members and on background text. It writes a
model folder for `pipelines.fsd --model FOLDER` with a card that records the training. Without --background, the
background is the prose in the docstrings of installed packages.
"""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from fsd.config import OptionalModel, Recipe
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel


@dataclass(frozen=True)
class PretrainConfig:
    """Members, background text and output folder."""

    out: Annotated[str, arg(metavar="PATH")]
    """Output folder; must not exist, or be empty."""
    members: tuple[str, ...] = ()
    """JSONL, CSV or Parquet files; rows labelled 0 are left out. Default: the embedded corpus."""
    columns: str = ""
    """Column names that differ from the defaults, e.g. text=Example_A,label=Label."""
    background: tuple[str, ...] = ()
    """Files of background text, in the same formats. Default: docstrings of installed packages."""
    paragraphs: int = 4000
    """Number of docstring paragraphs to sample without --background."""
    tokenizer: OptionalModel = None
    """Model whose tokenizer is used. Default: a new tokenizer, trained on the background."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    recipe: Recipe = field(default_factory=Recipe)


def main(config: PretrainConfig) -> None:
    """Read the texts, pretrain, and write model, tokenizer, token-frequency table and card."""
    from fsd.errors import UsageError
    from fsd.models.language_model import load_tokenizer
    from fsd.models.pretraining import pretrain

    out = Path(config.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"out must be a folder that does not exist or is empty; got {config.out}")
    members, background = _members(config), _background(config)
    tokenizer = load_tokenizer(config.tokenizer)[0] if config.tokenizer else None
    losses: list[float] = []
    model = pretrain(
        members,
        background,
        config.recipe,
        tokenizer=tokenizer,
        device=config.device,
        log=lambda loss, _: losses.append(loss),
    )
    card = _card(config, members, background, model, losses)
    _write(out, model, background, card)
    print(f"wrote {out}: {card['parameters']:,} parameters, last loss {card['loss']['last_20_steps']:.3f} nats a token")


def _members(config: PretrainConfig) -> list[str]:
    from fsd.data import embedded
    from fsd.data.readers import parse_columns, read_files

    documents = read_files(config.members, parse_columns(config.columns)) if config.members else embedded.corpus()
    return [document.text for document in documents if document.member is not False]


def _background(config: PretrainConfig) -> list[str]:
    from fsd.data.docstrings import docstring_paragraphs
    from fsd.data.readers import parse_columns, read_files

    if config.background:
        return [document.text for document in read_files(config.background, parse_columns(config.columns))]
    return docstring_paragraphs(limit=config.paragraphs, seed=config.recipe.seed)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(hashlib.sha256(t.encode()).hexdigest() for t in texts)).encode()).hexdigest()


def _card(
    config: PretrainConfig,
    members: Sequence[str],
    background: Sequence[str],
    model: "LanguageModel",
    losses: list[float],
) -> dict[str, Any]:
    """Record of the training from which it can be reproduced."""
    from fsd.data.docstrings import PACKAGES

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return {
        "recipe": asdict(config.recipe),
        "members": {"texts": len(members), "exposures": config.recipe.exposures, "sha256": _digest(members)},
        "background": {
            "texts": len(background),
            "passes": config.recipe.passes,
            "sha256": _digest(background),
            "source": "files" if config.background else {f"docstrings of {p}": _version(p) for p in PACKAGES},
        },
        "tokenizer": config.tokenizer or "trained on the background",
        "parameters": sum(p.numel() for p in model.base.parameters()),
        "steps": len(losses),
        "loss": {
            "first": losses[0],
            "last_20_steps": mean(losses[-20:]),
            "every_20_steps": [round(mean(losses[i : i + 20]), 4) for i in range(0, len(losses), 20)],
        },
    }


def _version(package: str) -> str:
    return version("scikit-learn" if package == "sklearn" else package)


def _write(out: Path, model: "LanguageModel", background: Sequence[str], card: dict[str, Any]) -> None:
    """Write the folder atomically."""
    from fsd.data.streaming import Passage
    from fsd.net.hub import fingerprint
    from fsd.scoring.token_counting import count

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".pretrain-") as scratch:
        folder = Path(scratch) / "model"
        model.base.half().save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
        card["fingerprint"] = fingerprint(folder)
        vocabulary = model.base.config.vocab_size
        table = count(
            map(Passage, background), model.tokenizer, vocabulary, model=out.name, corpus="its own background"
        )
        table.save(folder / "frequencies.npz")
        (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")
        (folder / "model.safetensors").chmod(0o644)
        if out.exists():
            out.rmdir()
        folder.replace(out)


if __name__ == "__main__":
    command(PretrainConfig, main, __doc__ or "")
