"""Draw one of N equally likely variants for each document, to publish it, and seal the list.

`python -m pipelines.canary make --data FILE --out DIR` writes DIR/published.jsonl (publish it), DIR/sealed.json (keep
it secret until the test) and DIR/commitment.txt (publish it, so that nobody can doubt the list later).

Examples:
    fsd canary make --data documents.jsonl --out canaries
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from fsd.config import Columns, OptionalModel, OptionalName, OptionalPaths, Paths

if TYPE_CHECKING:
    from pipelines.canary.files import Entry, Sealed
    from pipelines.common.dry_run import Plan


@dataclass(frozen=True)
class MakeConfig:
    """Documents, kind of the canaries, and output folder."""

    data: Paths
    """Files (JSONL, CSV, Parquet) with a column `text`; for paraphrases JSONL with a list `variants` in each row."""
    out: Annotated[str, arg(metavar="PATH")]
    """Output folder; must not exist, or be empty."""
    kind: Literal["words", "digits", "paraphrase"] = "words"
    """Random words after each document, a string of digits, or one of the document's own paraphrases in its place."""
    variants: int = 1000
    """Number N of equally likely canaries per document: the smallest p-value of one document is 1/N."""
    length: int = 8
    """Words or digits per canary."""
    rarity: Literal["common", "medium", "rare"] = "rare"
    """Which third of the words to draw from, by their frequency."""
    words: OptionalPaths = ()
    """Files of text whose words are drawn from. Default: the documents."""
    repetitions: tuple[int, ...] = (1,)
    """How often a document is published; several numbers are assigned to equal shares of the documents at random."""
    tokenizer: OptionalModel = None
    """Draw only words of equally many tokens for this model (`embedded`, folder or hub id)."""
    alpha: float = 0.001
    """Significance level that the rank of a single document must be able to reach."""
    columns: Columns = ""
    """Column names that differ from the defaults, e.g. text=body."""
    seed: OptionalName = None
    """Secret from which all draws follow. Default: 128 random bits, which are stored in sealed.json."""


def main(config: MakeConfig) -> None:
    """Read the documents, draw, write the folder, and print what to do with it."""
    from pipelines.canary import files
    from pipelines.common import outcome

    sealed = make(config)
    copies = sum(entry.repetitions for entry in sealed.documents)
    headline = f"{len(sealed.documents)} documents, published {copies} times in all"
    notes = [f"publish {files.PUBLISHED} and {files.COMMITMENT}; keep {files.SEALED} secret until the test"]
    if config.seed:
        notes.append("the seed was chosen by you: whoever guesses it knows which variants are published")
    found = outcome.Outcome(headline, notes=notes, files={"canaries": config.out})
    outcome.show(found, None, lambda: print(headline, *(f"• {note}" for note in notes), sep="\n"))


def plan(config: MakeConfig) -> "Plan":
    """What would be drawn: the same with the same seed, and nothing of it is kept."""
    from pipelines.common import dry_run
    from pipelines.common.output import check_new_folder

    check_new_folder(Path(config.out))
    check(config)
    sealed, _ = draw(config, config.seed or secrets.token_hex(16))
    copies = sum(entry.repetitions for entry in sealed.documents)
    variants = "their own paraphrases" if config.kind == "paraphrase" else f"{config.variants:,} canaries each"
    return dry_run.Plan(
        {
            "documents": dry_run.files(config.data, len(sealed.documents)),
            "variants": f"{variants}, one of them published",
            "published": f"{copies:,} copies",
        },
        writes=[config.out],
    )


def draw(config: MakeConfig, seed: str) -> "tuple[Sealed, dict[str, str]]":
    """The sealed list, and what is published of each document."""
    return (paraphrases if config.kind == "paraphrase" else random_canaries)(config, seed)


def make(config: MakeConfig) -> "Sealed":
    """Read the documents, draw, and write the folder.

    Returns:
        The sealed list.
    """
    from pipelines.canary import files
    from pipelines.common.output import new_folder

    check(config)
    with new_folder(Path(config.out)) as folder:
        seed = config.seed or secrets.token_hex(16)
        sealed, published = draw(config, seed)
        files.write(folder, sealed, published)
    return sealed


def check(config: MakeConfig) -> None:
    """Check the settings that do not depend on the documents.

    Raises:
        UsageError: for a level that so few variants cannot reach, or a repetition below 1.
    """
    from fsd.errors import UsageError

    if not 0 < config.alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1; got {config.alpha:g}")
    if config.kind != "paraphrase" and config.variants * config.alpha < 1 - 1e-9:
        raise UsageError(
            f"variants must be at least 1/alpha = {1 / config.alpha:,.0f} for a p-value of {config.alpha:g} from one "
            f"document; got {config.variants}"
        )
    if min(config.repetitions) < 1:
        raise UsageError(f"repetitions must be at least 1; got {min(config.repetitions)}")


def random_canaries(config: MakeConfig, seed: str) -> "tuple[Sealed, dict[str, str]]":
    """The sealed list of random canaries, and the published text of each document: the text, a blank line, the canary.

    Raises:
        UsageError: if a file cannot be read, or its words are too few.
    """
    from fsd.data.readers import parse_columns, read_files
    from fsd.evidence.canaries import Scheme, published_index, repetitions_of, word_pool
    from pipelines.canary.files import BREAK, Sealed

    documents = read_files(config.data, parse_columns(config.columns))
    words: Sequence[str] = ()
    tokenizer = ""
    if config.kind == "words":
        sources = read_files(config.words) if config.words else documents
        words = word_pool([source.text for source in sources], config.rarity)
        if config.tokenizer:
            words, tokenizer = equally_long(words, config.tokenizer)
    scheme = Scheme(seed, config.variants, config.length, tuple(words))
    scheme.check()
    ids = [f"{at:06d}" for at in range(1, len(documents) + 1)]
    repetitions = repetitions_of(seed, ids, config.repetitions)
    entries, published = [], {}
    for name, document in zip(ids, documents, strict=True):
        candidates = scheme.candidates(name)
        chosen = published_index(seed, name, config.variants)
        published[name] = f"{document.text}{BREAK}{candidates[chosen]}"
        entries.append(_entry(name, chosen, repetitions[name], published[name], candidates))
    return Sealed(config.kind, scheme, tokenizer, entries), published


def paraphrases(config: MakeConfig, seed: str) -> "tuple[Sealed, dict[str, str]]":
    """The sealed list of given paraphrases, of which one per document is published (STAMP, arXiv 2504.13416).

    Raises:
        UsageError: if a file cannot be read, or a row has fewer than two different variants.
    """
    from fsd.data.readers import read_rows
    from fsd.errors import UsageError
    from fsd.evidence.canaries import Scheme, published_index, repetitions_of
    from pipelines.canary.files import Sealed

    rows = read_rows(config.data)
    ids = [f"{at:06d}" for at in range(1, len(rows) + 1)]
    repetitions = repetitions_of(seed, ids, config.repetitions)
    entries, published = [], {}
    for name, (source, row) in zip(ids, rows, strict=True):
        variants = row.get("variants")
        given = variants if isinstance(variants, list) else []
        if len({v for v in given if isinstance(v, str) and v.strip()}) < max(2, len(given)):
            raise UsageError(
                f"{source}: variants must be a list of at least two different texts, each as fit to be published as "
                f"the others; got {str(variants)[:60]}"
            )
        chosen = published_index(seed, name, len(given))
        published[name] = given[chosen]
        entry = _entry(name, chosen, repetitions[name], published[name], given)
        entries.append(replace(entry, variants=given))
    return Sealed(config.kind, Scheme(seed, max(len(e.variants) for e in entries), 1), "", entries), published


def equally_long(words: Sequence[str], model: str) -> tuple[list[str], str]:
    """The words with the most common number of tokens in a model's tokenizer, after a space, and the tokenizer's hash.

    Raises:
        UsageError: if the tokenizer cannot be loaded.
    """
    from collections import Counter

    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import fingerprint

    tokenizer, _ = load_tokenizer(model)
    sizes = [len(ids) for ids in tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]]
    size = Counter(sizes).most_common(1)[0][0]
    return [word for word, tokens in zip(words, sizes, strict=True) if tokens == size], fingerprint(tokenizer)


def _entry(name: str, chosen: int, repetitions: int, text: str, candidates: Sequence[str]) -> "Entry":
    from pipelines.canary.files import Entry, sha256

    return Entry(name, chosen, repetitions, sha256(text), sha256("\x1f".join(candidates)))
