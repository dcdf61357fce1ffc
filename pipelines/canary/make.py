"""Draw one of N equally likely variants for each document, to publish it, and seal the list.

`python -m pipelines.canary make --data FILE --out DIR` writes DIR/published.jsonl (publish it), DIR/sealed.json (keep
it secret until the test) and DIR/commitment.txt (publish it, so that nobody can doubt the list later).

Examples:
    fsd canary make --data documents.jsonl --out canaries
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from fsd.config import Columns, OptionalModel, OptionalName, OptionalPaths, Paths
from pipelines.common.job import Job

if TYPE_CHECKING:
    from pipelines.canary.files import Canaries, Sealed


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
    """Secret from which, with the documents, all draws follow. Default: 128 random bits, stored in sealed.json."""


def prepare(config: MakeConfig) -> Job:
    """Draw once, for the checks and the numbers: the same with the same seed, and nothing of it is kept."""
    from pipelines.common import job
    from pipelines.common.output import check_new_folder

    check_new_folder(Path(config.out))
    check(config)
    sealed, _ = draw(config, config.seed or secrets.token_hex(16))
    copies = sum(entry.repetitions for entry in sealed.documents)
    variants = "their own paraphrases" if config.kind == "paraphrase" else f"{config.variants:,} canaries each"
    return Job(
        partial(run, config),
        {
            "documents": job.files(config.data, len(sealed.documents)),
            "variants": f"{variants}, one of them published",
            "published": f"{copies:,} copies",
        },
        writes=[config.out],
    )


def run(config: MakeConfig) -> None:
    """Draw, write the folder, and print what to do with it."""
    from fsd.reporting.report import Report
    from pipelines.canary import files
    from pipelines.common import outcome

    sealed = make(config).sealed
    copies = sum(entry.repetitions for entry in sealed.documents)
    notes = [f"publish {files.PUBLISHED} and {files.COMMITMENT}; keep {files.SEALED} secret until the test"]
    if config.seed:
        notes.append("the seed was chosen by you: whoever guesses it knows which variants are published")
    headline = f"{len(sealed.documents)} documents, published {copies} times in all"
    outcome.show(Report(headline=headline, findings=notes, files={"canaries": config.out}))


def make(config: MakeConfig) -> "Canaries":
    """Read the documents, draw, write the folder, and read it as a test would."""
    from pipelines.canary import files
    from pipelines.common.output import new_folder

    check(config)
    with new_folder(Path(config.out)) as folder:
        seed = config.seed or secrets.token_hex(16)
        sealed, published = draw(config, seed)
        files.write(folder, sealed, published)
        return files.read(folder)


def check(config: MakeConfig) -> None:
    """Check the settings that do not depend on the documents."""
    from fsd.errors import UsageError
    from fsd.evidence.canaries import MOST_REPETITIONS

    if not (config.seed or "").isprintable():
        raise UsageError(f"seed must be printable text; got {config.seed!r}")
    if not 0 < config.alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1; got {config.alpha:g}")
    if config.kind != "paraphrase" and config.variants * config.alpha < 1 - 1e-9:
        raise UsageError(
            f"variants must be at least 1/alpha = {1 / config.alpha:,.0f} for a p-value of {config.alpha:g} from one "
            f"document; got {config.variants}"
        )
    wrong = [number for number in config.repetitions if not 1 <= number <= MOST_REPETITIONS]
    if wrong:
        raise UsageError(f"repetitions must be from 1 to {MOST_REPETITIONS:,}; got {wrong[0]}")


def draw(config: MakeConfig, seed: str) -> "tuple[Sealed, dict[str, str]]":
    """The sealed list, and what is published of each document: the text, a blank line and a canary, or a paraphrase."""
    from fsd.data.documents import content_hash
    from fsd.data.readers import parse_columns, read_files
    from fsd.evidence.canaries import Scheme, published_index, repetitions_of
    from pipelines.canary.files import BREAK, SEPARATOR, VERSION, Entry, Sealed

    if config.kind == "paraphrase":
        given = paraphrases(config)
        texts = [SEPARATOR.join(variants) for variants in given]
        scheme, tokenizer = Scheme(seed, max(map(len, given)), 1), ""
    else:
        texts = [document.text for document in read_files(config.data, parse_columns(config.columns))]
        given = [[] for _ in texts]
        words, tokenizer = words_of(config, texts) if config.kind == "words" else ([], "")
        scheme = Scheme(seed, config.variants, config.length, words)
        scheme.check()
    documents = [(f"{at:06d}", content_hash(text)) for at, text in enumerate(texts, 1)]
    repetitions = repetitions_of(seed, documents, config.repetitions)
    entries, published = [], {}
    for document, text, variants in zip(documents, texts, given, strict=True):
        candidates = variants or scheme.candidates(document)
        chosen = published_index(seed, document, len(candidates))
        published[document[0]] = candidates[chosen] if variants else f"{text}{BREAK}{candidates[chosen]}"
        entries.append(Entry(*document, chosen, repetitions[document], variants))
    return Sealed(VERSION, config.kind, scheme, tokenizer, entries), published


def words_of(config: MakeConfig, texts: Sequence[str]) -> tuple[list[str], str]:
    """The words to draw from, and the hash of the tokenizer in whose tokens they are equally long; "" without one."""
    from fsd.data.readers import read_files
    from fsd.evidence.canaries import word_pool

    words = word_pool([source.text for source in read_files(config.words)] if config.words else texts, config.rarity)
    return equally_long(words, config.tokenizer) if config.tokenizer else (words, "")


def paraphrases(config: MakeConfig) -> list[list[str]]:
    """The texts that each row lists as variants, of which one is published (STAMP, arXiv 2504.13416)."""
    from fsd.data.readers import document, read_rows
    from fsd.errors import UsageError

    found = []
    for source, row in read_rows(config.data):
        variants = row.get("variants")
        given = variants if isinstance(variants, list) else []
        texts = [document({"text": variant}, {}, source).text for variant in given]
        if len(set(texts)) < max(2, len(texts)):
            raise UsageError(
                f"{source}: variants must be a list of at least two different texts, each as fit to be published as "
                f"the others; got {str(variants)[:60]}"
            )
        found.append(texts)
    return found


def equally_long(words: Sequence[str], model: str) -> tuple[list[str], str]:
    """The words with the most common number of tokens in a tokenizer, after a space, and the hash of the tokenizer."""
    from collections import Counter

    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import fingerprint

    tokenizer, _ = load_tokenizer(model)
    sizes = [len(ids) for ids in tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]]
    size = Counter(sizes).most_common(1)[0][0]
    return [word for word, tokens in zip(words, sizes, strict=True) if tokens == size], fingerprint(tokenizer)
