"""Build a target model from scratch whose members are known: the laboratory.

`python -m pipelines.pretrain --members FILE --out FOLDER` reads the members a chosen number of times among
background text and writes a model folder that `pipelines.fsd --model FOLDER` takes, with a card that says how it
was made. Without --background, the background is the prose in the docstrings of installed packages.
"""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd.config import Recipe
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel


@dataclass(frozen=True)
class PretrainConfig:
    """Which texts become members, what else is read, and where the model goes."""

    out: str
    """Folder to write; must not exist, or be empty."""
    members: tuple[str, ...] = ()
    """JSONL, CSV or Parquet files; rows labelled 0 are left out. Default: the embedded corpus."""
    columns: str = ""
    """Other column names, e.g. text=Example_A,label=Label."""
    background: tuple[str, ...] = ()
    """Files of background text, read like members. Default: docstrings of installed packages."""
    paragraphs: int = 4000
    """Docstring paragraphs to draw when no background is given."""
    tokenizer: str | None = None
    """Model whose tokenizer is taken over; by default one is trained on the background."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    recipe: Recipe = field(default_factory=Recipe)


def main(config: PretrainConfig) -> None:
    """Gather the texts, pretrain, and write model, tokenizer, token frequencies and card."""
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
    """Everything needed to say how the model was made, and to make it again."""
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
            "source": "files" if config.background else {f"docstrings of {p}": version(_dist(p)) for p in PACKAGES},
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


def _dist(package: str) -> str:
    return "scikit-learn" if package == "sklearn" else package


def _write(out: Path, model: "LanguageModel", background: Sequence[str], card: dict[str, Any]) -> None:
    """The folder appears whole or not at all."""
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
