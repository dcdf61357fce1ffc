"""The demonstration: a model that was trained on published canaries, and the same model before."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from extensions.canary import rank
from extensions.canary.files import BREAK, Canaries
from extensions.canary.make import seal
from extensions.canary.settings import DemoConfig, MakeConfig
from fsd.api import (
    FOR,
    Column,
    DetectorConfig,
    Finding,
    ModelConfig,
    Recipe,
    Table,
    continue_pretraining,
    language_model,
    open_model,
    p_words,
    unread,
)
from pipelines.api import Job, Stated, load_detectors, show_demonstration, stage

DOCUMENTS = 30
ALPHA = 0.05
EXPLANATION = (
    Finding("p of single documents is the rank of the published variant among all; found: p ≤ .05, by chance .05", FOR),
    Finding("which variant is published was drawn at random, so the p-values are exact for any model", FOR),
)


def prepare(config: DemoConfig) -> Job:
    """Nothing to check: the demonstration is always the same."""
    return Job(partial(run, config), {"documents": Stated(f"{DOCUMENTS} embedded abstracts", {"texts": DOCUMENTS})})


def make_canaries(documents: Sequence[str], words_of: Sequence[str], seed: int) -> tuple[Canaries, list[str]]:
    """Canaries of documents, of the words of some texts, and what is published."""
    config = MakeConfig(
        (), "", seed=f"demonstration {seed}", variants=100, length=6, alpha=0.01, repetitions=(1, 4, 16)
    )
    sealed, texts = seal(config, documents, words_of)
    contexts = {}
    published = []
    for entry, document in zip(sealed.documents, documents, strict=True):
        contexts[entry.id] = document + BREAK
        published += [texts[entry.id]] * entry.repetitions
    return Canaries(sealed, contexts), published


def run(config: DemoConfig) -> None:
    """Make canaries, train on the published ones, and test the model that was trained on them and the one before."""
    # The cache knows a model by its files, which the training does not change.
    uncached = ModelConfig(cache="none")
    with stage("model"):
        # Members were read when the embedded model was trained: only the others show what this training adds.
        abstracts = unread()
        canaries, published = make_canaries(abstracts[:DOCUMENTS], abstracts, config.seed)
        model = language_model.load(uncached)
        # A copy, since the training changes the weights in place.
        trained = replace(model, model=copy.deepcopy(model.model))
        continue_pretraining(trained, published, Recipe(batch_size=4, learning_rate=3e-3, seed=config.seed))
    loss = load_detectors(DetectorConfig("loss"))
    with stage("scoring"):
        tests = {}
        for name, tested in (("trained", trained), ("control", model)):
            scores = rank.score(canaries, loss, open_model(uncached, local=tested).scorers, seed=config.seed)
            tests[name] = rank.rank_tests(scores, ["loss"], alpha=ALPHA, seed=config.seed)
    p = {name: p_words(rank.together(results)["p"].item()) for name, results in tests.items()}
    rows = pd.concat([results.assign(model=name) for name, results in tests.items()])
    table = Table(
        rows,
        [Column("model"), *rank.MODEL_COLUMNS],
        title="canaries on the embedded model, detector loss",
        name="results",
        kept=(0, 1, 5, 4, 2),
        source="--json",
    )
    result = (
        f"all documents together: {p['trained']} by the model that was trained on them, {p['control']} by the "
        "one before"
    )
    show_demonstration([Finding(result), *EXPLANATION], table, "fsd canary make --data FILE --out canaries")
