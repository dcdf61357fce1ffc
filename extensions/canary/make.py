"""The variants of each document, one of which is drawn, and the folder that is made of them."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mode

from extensions.canary import files
from extensions.canary.canaries import MOST_REPETITIONS, Scheme, published_index, repetitions_of, word_pool
from extensions.canary.files import BREAK, SEPARATOR, VERSION, Entry, Sealed
from extensions.canary.settings import MakeConfig
from fsd.api import (
    AGAINST,
    Corpus,
    Report,
    UsageError,
    as_findings,
    check_level,
    content_hash,
    parse_columns,
    read_rows,
    read_texts,
)
from fsd.api import document as document_of
from pipelines.api import Job, Stated, check_new_folder, show
from pipelines.api import files as files_read


def prepare(config: MakeConfig) -> Job:
    """Check the settings, and draw."""
    # A list that is replaced cannot be tested any more, although its canaries are published.
    check_new_folder(Path(config.out))
    sealed, published = draw(config)
    variants = f"{config.variants:,} canaries each"
    of_each = [config.variants]
    if config.kind == "paraphrase":
        variants = "their own paraphrases"
        of_each = list(map(sealed.count, sealed.documents))
    reads = {"documents": files_read(config.data, len(sealed.documents))}
    reads["variants"] = Stated(f"{variants}, one of them published", {"of_each": of_each})
    reads["published"] = Stated(f"{sealed.copies:,} copies", {"copies": sealed.copies})
    return Job(partial(run, config, sealed, published), reads, writes=[config.out])


def run(config: MakeConfig, sealed: Sealed, published: Mapping[str, str]) -> None:
    """Write the folder, and print what to do with it."""
    made = files.write(Path(config.out), sealed, published)
    notes = [
        f"publish {files.PUBLISHED} and {files.COMMITMENT}; keep {files.SEALED} secret until the test",
        f"the line of {files.COMMITMENT}, to publish where it is dated: sha256 {made.sha256}",
    ]
    if config.seed:
        notes.append("the seed was chosen by you: whoever guesses it knows which variants are published")
    if config.kind != "paraphrase":
        notes.append(
            f"readers see the {config.kind} after each document; where its wording must stay yours, write variants of "
            "it and publish one by --kind paraphrase"
        )
    report = Report(
        headline=f"{len(sealed.documents)} documents, published {sealed.copies} times in all",
        findings=as_findings(notes, AGAINST),
        files={"canaries": config.out},
        next=[f"fsd canary test {shlex.quote(config.out)} --model MODEL"],
    )
    show(report)


def draw(config: MakeConfig) -> tuple[Sealed, dict[str, str]]:
    """The sealed list of the documents in files, and what is published of each."""
    _check(config)
    if config.kind == "paraphrase":
        return seal(config, paraphrases=_paraphrases(config))
    texts = Corpus(read_texts(config.data, parse_columns(config.columns))).texts
    files.check_unpublished(config.data)
    words_of = texts
    if config.words:
        words_of = Corpus(read_texts(config.words)).texts
    return seal(config, texts, words_of)


def seal(
    config: MakeConfig,
    texts: Sequence[str] = (),
    words_of: Sequence[str] = (),
    *,
    paraphrases: Sequence[Sequence[str]] = (),
) -> tuple[Sealed, dict[str, str]]:
    """The sealed list, and what is published of each document: the text, a blank line and a canary, or a paraphrase."""
    # Not of `random`, whose states can be guessed from what was published.
    seed = config.seed or secrets.token_hex(16)
    tokenizer = ""
    if paraphrases:
        texts = list(map(SEPARATOR.join, paraphrases))
        # Of the scheme, only the seed has an effect here: the variants are in the list.
        scheme = Scheme(seed, max(map(len, paraphrases)), length=1)
    else:
        words, tokenizer = _words(config, words_of)
        # A reader would take a word that stands twice for a slip; digits may.
        scheme = Scheme(seed, config.variants, config.length, words, distinct=config.kind == "words")
        scheme.check()
    # The hash of the text is part of the key, so that one seed gives other documents other canaries.
    keys = [(f"{number:06d}", content_hash(text)) for number, text in enumerate(texts, 1)]
    repetitions = repetitions_of(seed, keys, config.repetitions)
    entries = []
    published = {}
    for key, text, variants in zip(keys, texts, paraphrases or [()] * len(texts), strict=True):
        name, sha256 = key
        candidates = variants or scheme.candidates(key)
        index = published_index(seed, key, len(candidates))
        entries.append(Entry(name, sha256, index, repetitions[key], variants))
        canary = candidates[index]
        # A paraphrase takes the place of its document.
        published[name] = canary if variants else text + BREAK + canary
    return Sealed(VERSION, config.kind, scheme, tokenizer, entries), published


def _check(config: MakeConfig) -> None:
    """Refuse settings that no documents can mend."""
    check_level("alpha", config.alpha)
    # The slack lets 1,000 variants reach a level of .001, whatever the rounding of their product.
    if config.kind != "paraphrase" and config.variants * config.alpha < 1 - 1e-9:
        raise UsageError(
            f"variants must be at least 1/alpha = {1 / config.alpha:,.0f} for a p-value of {config.alpha:g} from one "
            f"document; got {config.variants}"
        )
    for number in config.repetitions:
        if not 1 <= number <= MOST_REPETITIONS:
            raise UsageError(f"repetitions must be from 1 to {MOST_REPETITIONS:,}; got {number}")


def _paraphrases(config: MakeConfig) -> list[list[str]]:
    """The texts that each row lists as variants, of which one is published (STAMP, arXiv 2504.13416)."""
    rows = []
    for origin_url, row in read_rows(config.data):
        variants = row.get("variants")
        texts = []
        if isinstance(variants, list):
            # Each is checked as the text of a document would be, which it may become.
            texts = [document_of({"text": text}, {}, origin_url).text for text in variants]
        if len(set(texts)) < max(2, len(texts)):
            raise UsageError(
                f"{origin_url}: variants must be a list of at least two different texts, each as fit to be published "
                f"as the others; got {str(variants)[:60]}"
            )
        rows.append(texts)
    return rows


def _words(config: MakeConfig, texts: Sequence[str]) -> tuple[list[str], str]:
    """The words to draw from, and the hash of the tokenizer in whose tokens they are equally long; "" without one."""
    if config.kind == "digits":
        return [], ""
    words = word_pool(texts, config.rarity)
    if not config.tokenizer:
        return words, ""
    from fsd.api import fingerprint_of_tokenizer as fingerprint
    from fsd.api import load_tokenizer

    tokenizer, _ = load_tokenizer(config.tokenizer)
    # With the blank before it, as in the middle of a canary, a word is another token than alone.
    encoded = tokenizer([f" {word}" for word in words], add_special_tokens=False)
    sizes = list(map(len, encoded["input_ids"]))
    # Most words are kept by the most frequent length.
    size = mode(sizes)
    kept = [word for word, tokens in zip(words, sizes, strict=True) if tokens == size]
    return kept, fingerprint(tokenizer)
