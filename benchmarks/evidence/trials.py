"""The trials: models whose training data is known, and what each kind of evidence finds in them.

A trial returns plain numbers, which `__main__` stores; tables and the figure are made of the stored numbers alone.
"""

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from extensions.adapter_audit import audit
from extensions.adapter_audit.settings import AuditConfig
from extensions.canary import files, make, rank
from extensions.canary.settings import MakeConfig
from extensions.contamination import dataset_tests
from extensions.extract import works
from extensions.study.docstrings import docstring_paragraphs
from fsd.config import AdapterConfig, DetectorConfig, ModelConfig, Recipe
from fsd.data.embedded import corpus
from fsd.data.splitting import split_labelled
from fsd.evaluation.rows import by_key
from fsd.models import adapters, language_model
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel
from fsd.models.pretraining import pretrain
from fsd.scores import BASE, of_state
from fsd.scoring.deviation import score_texts
from fsd.scoring.model import open_model
from fsd.scoring.model_scorer import ModelScorer, hidden_states
from fsd.scoring.sampling import Sampling
from fsd.scoring.scorers import STATES
from fsd.statistics.ranks import rank_among
from fsd.token_stats import Scorer, Scores
from fsd.verdicts.dataset_inference import dataset_verdict
from fsd.views import usable
from pipelines.experiment.detector_settings import cheap, load_detectors

LEVELS = (0, 1, 2, 4, 8, 16, 32)
ALPHA = 0.05
EXTRACTABLE = (0.001, 0.01, 0.5)
ORDERED, SHARD = 50, 5
SET = 11
SETTINGS = ModelConfig(cache="none")


@dataclass(frozen=True)
class Size:
    """How large a trial is; the defaults fit the embedded corpus of 420 abstracts."""

    documents: int = 15  # that carry a canary, per level
    passages: int = 8  # texts of which extraction is tried, per level
    background: int = 4000  # paragraphs that every model reads besides
    passes: int = 2  # over the background
    null: int = 20  # random orders of the ordered set that was not read, each of which is tested
    partitions: int = 3  # of the texts that were not read into sets
    draws: int = 100  # of two sides for dataset inference
    epochs: int = 5  # of the adapter that is audited last; the others have fewer
    audited: int = 400  # texts of the adapters
    levels: tuple[int, ...] = LEVELS
    variants: int = 200  # of a canary
    sets: int = 19  # among which a set has its rank
    texts: int | None = None  # of the embedded corpus, all by default
    recipe: Recipe = field(default_factory=lambda: Recipe(exposures=1))


SMALL = Size(
    documents=6,
    passages=5,
    background=60,
    passes=1,
    null=2,
    partitions=1,
    draws=3,
    epochs=1,
    audited=80,
    levels=(0, 2),
    variants=20,
    sets=2,
    texts=110,
    recipe=Recipe(exposures=1, hidden_size=32, layers=1, heads=2),
)
"""As little as shows in less than a minute that every part runs; the numbers mean nothing."""


@dataclass(frozen=True)
class Target:
    """A pretrained model and what it read, by number of times."""

    model: LanguageModel
    canaries: dict[int, files.Canaries]
    passages: dict[int, list[str]]
    read: dict[int, list[str]]
    ordered: dict[int, list[str]]
    unread: list[str]


def pretrained(seed: int, folder: Path, size: Size) -> Target:
    """A model that read canaries, passages and an ordered data set of each level that often, among background text."""
    abstracts = [document.text for document in corpus()]
    random.Random(seed).shuffle(abstracts)
    abstracts = abstracts[: size.texts]
    extra = docstring_paragraphs(limit=size.background + ORDERED * len(size.levels), seed=seed)
    background, short = extra[: size.background], [" ".join(text.split()[:20]) for text in extra[size.background :]]
    words = write(folder / "words.jsonl", abstracts)
    canaries, passages, read, ordered, members = {}, {}, {}, {}, []
    each = size.documents + size.passages
    for at, level in enumerate(size.levels):
        read[level] = abstracts[at * each : (at + 1) * each]
        out = folder / f"canaries-{level}"
        data = write(folder / f"documents-{level}.jsonl", read[level][: size.documents])
        seal = f"{seed}/{level}"
        variants = size.variants
        settings = MakeConfig((data,), str(out), variants=variants, alpha=1 / variants, words=(words,), seed=seal)
        canaries[level] = files.write(out, *make.draw(settings))
        published = [json.loads(line)["text"] for line in (out / files.PUBLISHED).read_text().splitlines()]
        passages[level] = read[level][size.documents :]
        ordered[level] = short[at * ORDERED : (at + 1) * ORDERED]
        shards = [dataset_tests.BREAK.join(ordered[level][i : i + SHARD]) for i in range(0, ORDERED, SHARD)]
        members += (published + passages[level] + shards) * level
    recipe = replace(size.recipe, passes=size.passes, seed=seed)
    model = pretrain(members, background, recipe)
    return Target(model, canaries, passages, read, ordered, abstracts[each * len(size.levels) :])


def write(path: Path, texts: Sequence[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def reader(model: LanguageModel) -> Scorer:
    return ModelScorer(model, tuned=False)


def target(seed: int, size: Size) -> dict[str, Any]:
    """Canaries, extraction and the tests of data sets on one pretrained model."""
    with tempfile.TemporaryDirectory() as scratch:
        made = pretrained(seed, Path(scratch), size)
    return {
        "canaries": canary_ranks(made, seed),
        "extraction": extraction(made),
        "order": order(made, seed, size),
        "inference": inference(made, seed, size),
        "sets": ranked_sets(made, seed, size),
    }


def canary_ranks(made: Target, seed: int) -> list[dict[str, Any]]:
    """For each detector and level the exact p of each document, and of all together."""
    detectors = load_detectors(DetectorConfig(detectors="loss,min_k_pp"))
    scorers = {"base": reader(made.model)}
    found = []
    for level in made.read:
        scores = rank.score(made.canaries[level], detectors, scorers, seed=seed)
        for name in (detector.name for detector in detectors):
            p = rank.rank_p_values(scores, name).tolist()
            combined = float(rank.rank_tests(scores, [name], alpha=ALPHA)["p"].iloc[-1])
            found.append({"detector": name, "level": level, "p": p, "combined": combined})
    return found


def extraction(made: Target) -> list[dict[str, Any]]:
    """For each level the log10 p_z of all passages, and of each text the shares in extractable ones."""
    found = []
    for level in made.read:
        texts = made.passages[level]
        cut = works.cut([f"text {at}" for at in range(len(texts))], made.model.tokens(texts), 20, 20, 5)
        (scored,) = works.by_model(cut, made.model, [Sampling()]).values()
        log10_p = [(work.log_p / np.log(10)).tolist() for work in scored]
        shares = {}
        for p in EXTRACTABLE:
            inside = [work.suffixes(-np.inf) for work in scored]
            covered = [work.suffixes(float(np.log(p)))[of] for work, of in zip(scored, inside, strict=True)]
            shares[str(p)] = [[int(tokens.sum()), tokens.size] for tokens in covered]
        found.append({"level": level, "log10_p": log10_p, "tokens": shares})
    return found


def order(made: Target, seed: int, size: Size) -> dict[str, Any]:
    """The test of order: of each level's set in the order that was read, and of random orders of the unread one."""
    scorer = reader(made.model)
    rng = random.Random(seed)
    levels = {
        level: dataset_tests.exchangeability(made.ordered[level], scorer, shard=SHARD, seed=seed)[0]
        for level in size.levels
    }
    null = []
    for draw in range(size.null):
        texts = rng.sample(made.ordered[0], ORDERED)
        null.append(dataset_tests.exchangeability(texts, scorer, shard=SHARD, orders=9, seed=draw)[0])
    return {"levels": [[level, p] for level, p in levels.items()], "null": null}


def inference(made: Target, seed: int, size: Size) -> dict[str, Any]:
    """LLM Dataset Inference: sets of each level, and sets of unread texts, each against other unread ones."""
    scorers = {"base": reader(made.model)}
    plain = [d for d in cheap(load_detectors(DetectorConfig())) if not d.paired]
    rng = np.random.default_rng(seed)

    def scores(texts: Sequence[str]) -> Scores:
        computable, _ = usable(plain, texts, scorers)
        return of_state(score_texts(texts, computable, scorers).columns, BASE)

    unread = scores([*made.unread, *made.read[0]])
    many = len(made.unread) + len(made.read[0])

    def p(suspect: Scores, known: Scores) -> float:
        verdict = dataset_verdict(suspect, known, permutations=199, seed=int(rng.integers(2**31)))
        assert verdict.p is not None  # it is withheld only for a blind classifier, and none is given
        return verdict.p

    def part(of: Scores, rows: Sequence[int]) -> Scores:
        return {name: column[np.asarray(rows)] for name, column in of.items()}

    levels = []
    count = len(made.read[0])
    for level in size.levels[1:]:
        suspect = scores(made.read[level])
        levels += [[level, p(suspect, part(unread, rng.permutation(many)[: 2 * count]))] for _ in range(5)]
    null = []
    for _ in range(size.draws):
        drawn = rng.permutation(many)
        null.append(p(part(unread, drawn[:count]), part(unread, drawn[count : 3 * count])))
    return {"levels": levels, "null": null}


def ranked_sets(made: Target, seed: int, size: Size) -> dict[str, Any]:
    """CoDeC and kernel divergence: p of sets of each level and of unread ones, by rank among sets of unread texts."""
    scorer = reader(made.model)
    training = AdapterConfig(epochs=1)
    rng = np.random.default_rng(seed)

    def statistics(texts: Sequence[str]) -> tuple[float, float]:
        codec = dataset_tests.codec(texts, scorer, shots=1, seed=seed)
        before = hidden_states(made.model, texts, depth=1, tuned=False)
        finetune(made.model, texts, training, seed=seed, shown=False)
        after = hidden_states(made.model, texts, depth=1, tuned=True)
        adapters.detach(made.model)
        return codec, dataset_tests.kernel_divergence(before, after)

    texts = [*made.unread, *made.read[0]]
    partitions = []
    for _ in range(size.partitions):
        drawn = rng.permutation(len(texts))[: (size.sets + 6) * SET].reshape(-1, SET)
        partitions.append(np.array([statistics([texts[at] for at in one]) for one in drawn]))

    def ranks(values: tuple[float, float], others: Any) -> list[float]:
        return [rank_among(value, others[:, at]) for at, value in enumerate(values)]

    null = []
    for partition in partitions:
        for at, values in enumerate(partition):
            others = np.delete(partition, at, axis=0)
            null.append(ranks(values, others[rng.permutation(len(others))[: size.sets]]))
    levels = []
    for level in size.levels[1:]:
        for start in range(0, len(made.read[level]) - SET + 1, SET):
            values = statistics(made.read[level][start : start + SET])
            levels += [[level, *ranks(values, partition[: size.sets])] for partition in partitions]
    return {"levels": levels, "null": null}


def audits(seed: int, size: Size) -> list[dict[str, Any]]:
    """Adapters trained for 0 epochs to the most of the size on half of the embedded non-members, and audited."""
    others = [document for document in corpus() if not document.member]
    random.Random(seed).shuffle(others)
    others = others[: size.audited]
    half = len(others) // 2
    documents = [replace(document, member=at < half) for at, document in enumerate(others)]
    config = AuditConfig(model=SETTINGS, detection=DetectorConfig(detectors="loss,min_k,min_k_pp"), seed=seed)
    parts = split_labelled(documents, validation=config.validation, seed=seed)
    model = language_model.load(SETTINGS)
    found = []
    for epochs in range(size.epochs + 1):
        if epochs:
            training = AdapterConfig(epochs=epochs, learning_rate=3e-3, batch_size=4)
            finetune(model, [d.text for d in documents if d.member], training, seed=seed, shown=False)
        opened = open_model(SETTINGS, states=STATES, local=model)
        if not epochs:
            opened = replace(opened, scorers={**opened.scorers, "tuned": opened.scorers["base"]})
        results = audit.measure(audit.Inputs(parts), opened.audited(), config).results
        best = results.calibration.detector
        numbers = by_key(results.table)
        test = results.scores[results.scores["split"] == "test"]
        p = results.calibration.p_values(test[str(results.calibration.score)])
        found.append(
            {
                "epochs": epochs,
                "detector": best,
                "tuned": numbers[best, "tuned", "auc"].value,
                "calibrated": numbers[best, "calibrated", "auc"].value,
                "label": test["label"].astype(int).tolist(),
                "p": p.tolist(),
            }
        )
        adapters.detach(model)
    return found
