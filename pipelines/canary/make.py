"""The variants of each document, one of which is drawn, and the folder that is made of them."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fsd.data.documents import content_hash
from fsd.data.readers import document, parse_columns, read_files, read_rows
from fsd.errors import UsageError
from fsd.evidence.canaries import MOST_REPETITIONS, Scheme, published_index, repetitions_of, word_pool
from fsd.reporting.report import Against, Report
from pipelines.canary import MakeConfig, files
from pipelines.canary.files import BREAK, SEPARATOR, VERSION, Entry, Sealed
from pipelines.common import job
from pipelines.common.job import Job
from pipelines.common.output import check_new_folder


def prepare(config: MakeConfig) -> Job:
    """Check the settings, and draw."""
    check_new_folder(Path(config.out))
    sealed, published = draw(config)
    copies = sum(entry.repetitions for entry in sealed.documents)
    variants = "their own paraphrases" if config.kind == "paraphrase" else f"{config.variants:,} canaries each"
    return Job(
        partial(run, config, sealed, published),
        {
            "documents": job.files(config.data, len(sealed.documents)),
            "variants": f"{variants}, one of them published",
            "published": f"{copies:,} copies",
        },
        writes=[config.out],
    )


def run(config: MakeConfig, sealed: Sealed, published: Mapping[str, str]) -> None:
    """Write the folder, and print what to do with it."""
    files.write(Path(config.out), sealed, published)
    copies = sum(entry.repetitions for entry in sealed.documents)
    notes = [Against(f"publish {files.PUBLISHED} and {files.COMMITMENT}; keep {files.SEALED} secret until the test")]
    if config.seed:
        notes.append(Against("the seed was chosen by you: whoever guesses it knows which variants are published"))
    headline = f"{len(sealed.documents)} documents, published {copies} times in all"
    use = [f"fsd canary test {config.out} --model MODEL"]
    job.show(Report(headline=headline, findings=notes, files={"canaries": config.out}, next=use))


def draw(config: MakeConfig) -> tuple[Sealed, dict[str, str]]:
    """The sealed list, and what is published of each document: the text, a blank line and a canary, or a paraphrase."""
    if not (config.seed or "").isprintable():
        raise UsageError(f"seed must be printable text; got {config.seed!r}")
    if not 0 < config.alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1; got {config.alpha:g}")
    if config.kind != "paraphrase" and config.variants * config.alpha < 1 - 1e-9:
        raise UsageError(
            f"variants must be at least 1/alpha = {1 / config.alpha:,.0f} for a p-value of {config.alpha:g} from one "
            f"document; got {config.variants}"
        )
    wrong = next((number for number in config.repetitions if not 1 <= number <= MOST_REPETITIONS), None)
    if wrong is not None:
        raise UsageError(f"repetitions must be from 1 to {MOST_REPETITIONS:,}; got {wrong}")
    seed = config.seed or secrets.token_hex(16)
    if config.kind == "paraphrase":
        given = _paraphrases(config)
        texts = [SEPARATOR.join(variants) for variants in given]
        scheme, tokenizer = Scheme(seed, max(map(len, given)), 1), ""
    else:
        texts = [source.text for source in read_files(config.data, parse_columns(config.columns))]
        given = [[] for _ in texts]
        words, tokenizer = _words(config, texts) if config.kind == "words" else ([], "")
        scheme = Scheme(seed, config.variants, config.length, words)
        scheme.check()
    documents = [(f"{at:06d}", content_hash(text)) for at, text in enumerate(texts, 1)]
    repetitions = repetitions_of(seed, documents, config.repetitions)
    entries, published = [], {}
    for key, text, variants in zip(documents, texts, given, strict=True):
        candidates = variants or scheme.candidates(key)
        chosen = published_index(seed, key, len(candidates))
        published[key[0]] = candidates[chosen] if variants else f"{text}{BREAK}{candidates[chosen]}"
        entries.append(Entry(*key, chosen, repetitions[key], variants))
    return Sealed(VERSION, config.kind, scheme, tokenizer, entries), published


def _paraphrases(config: MakeConfig) -> list[list[str]]:
    """The texts that each row lists as variants, of which one is published (STAMP, arXiv 2504.13416)."""
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


def _words(config: MakeConfig, texts: Sequence[str]) -> tuple[list[str], str]:
    """The words to draw from, and the hash of the tokenizer in whose tokens they are equally long; "" without one."""
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import fingerprint

    words = word_pool([source.text for source in read_files(config.words)] if config.words else texts, config.rarity)
    if not config.tokenizer:
        return words, ""
    tokenizer, _ = load_tokenizer(config.tokenizer)
    sizes = [len(ids) for ids in tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]]
    size = Counter(sizes).most_common(1)[0][0]
    return [word for word, tokens in zip(words, sizes, strict=True) if tokens == size], fingerprint(tokenizer)
