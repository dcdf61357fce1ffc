"""The page of a real model: what it is trained on, the questions, and the answers beside those of the untouched one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from fsd.config import DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.data.splitting import LATER, split_labelled
from fsd.errors import UsageError
from fsd.evaluation.metrics import Estimate, shortened
from fsd.models.language_model import LanguageModel
from fsd.net.hub import default_folder, locate
from fsd.reporting.report import For, Report, Section, Table, limits, p_value, plain
from fsd.scoring.model import build_scorers
from pipelines.adapter_audit import AuditConfig, audit
from pipelines.canary import demo, rank
from pipelines.common.experiment import load_detectors
from pipelines.common.job import Job, deliver, stage, tracked_run
from pipelines.extract import report as extract
from pipelines.extract import works
from pipelines.study.lab import RealConfig, corpora, results
from pipelines.study.lab.results import SHOWN, TITLES
from pipelines.study.lab.targets import Base, Cell, scores, shared, train_shared_models, trained

EXPERIMENT = "fsd-real"
CORPUS = "wikipedia"
DOCUMENTS, COPIES, SEEN, UNSEEN = 6, 16, 2, 6
"""Documents with canaries; copies of an abstract to be extracted, number of these, and of those never seen."""
SCHEME: dict[str, Any] = {"variants": 20, "length": 6, "alpha": 0.05, "repetitions": (1, 4, 16)}
PARAGRAPHS = 400
AUDIT = "loss,min_k,zlib,wbc"


def prepare(config: RealConfig) -> Job:
    """Check the settings, and that the model is there."""
    if config.texts < 32:
        raise UsageError(f"texts must be at least 32; got {config.texts}")
    if not 0 < config.learning_rate < 1:
        raise UsageError(f"learning-rate must be above 0 and below 1; got {config.learning_rate}")
    locate(config.model, weights=False)
    sides = corpora.draw(corpora.load(CORPUS), config.seed, config.texts)
    texts = [document.text for side in sides.values() for document in side]
    return Job(
        partial(run, config, sides),
        {"texts": ", ".join(f"{len(side)} {kind}" for kind, side in sides.items())},
        ModelConfig(config.model),
        texts=texts,
        passes={"base": 2 * len(texts), "tuned": 2 * len(texts), "reference": len(texts)},
        experiment=EXPERIMENT,
        notes=["the model is trained further in full, which needs sixteen bytes a parameter and bfloat16 factors"],
    )


def run(config: RealConfig, sides: Any) -> None:
    """Train, ask, and ask the untouched model the same."""
    with stage("data"):
        base = Base.of(config.model, config.learning_rate)
        common = shared(default_folder(config.cache) / "real", ("pandas",), PARAGRAPHS, base)
        cells = [Cell(CORPUS, exposures=times, seed=config.seed, sides=sides, **common) for times in (1, 0)]
        train_shared_models(cells[0])
        abstracts = [document.text for document in corpus() if not document.member]
        canaries, published = demo.made(abstracts[:DOCUMENTS], abstracts, f"real {config.seed}", **SCHEME)
        chosen = abstracts[DOCUMENTS : DOCUMENTS + SEEN + UNSEEN]
    with tracked_run(config, EXPERIMENT, f"{base.name} · seed {config.seed}") as tracked:
        found = {}
        for cell, name in zip(cells, ("trained", "untouched"), strict=True):
            with stage(name), cell.precision:
                found[name] = _ask(cell, canaries, [*published, *chosen[:SEEN] * COPIES], chosen)
        deliver(partial(report, config, found, cells[0]), tracked)


def _ask(cell: Cell, canaries: Any, more: list[str], chosen: list[str]) -> dict[str, Any]:
    """The answers of a model: canaries, extraction, scores, and the audit of the adapter of the untouched one."""
    model = trained(cell, more)
    ranked = rank.score(
        canaries, load_detectors(DetectorConfig("loss")), build_scorers(model, cell.config.model), seed=cell.seed
    )
    extracted = works.seen_and_unseen(model, chosen, SEEN, COPIES)
    found = {
        "canary": rank.rank_tests(ranked, ["loss"], alpha=SCHEME["alpha"], seed=cell.seed),
        "extraction": extracted,
        "scores": scores(cell, model),
    }
    return found if cell.exposures else found | {"audit": _audit(cell, model)}


def _audit(cell: Cell, model: LanguageModel) -> Table:
    """The audit of the adapter: texts that it was trained on against later ones."""
    config = AuditConfig(detection=DetectorConfig(AUDIT), seed=cell.seed, validation=0.2)
    sides = ((corpora.UNSEEN, True), (LATER, False))
    labelled = [replace(document, member=is_in) for side, is_in in sides for document in cell.sides[side]]
    parts = split_labelled(labelled, validation=config.validation, seed=cell.seed)
    return audit.detectors_table(audit.judge(parts, [], build_scorers(model, cell.config.model), config))


def report(config: RealConfig, found: dict[str, dict[str, Any]], cell: Cell) -> Report:
    """One page: the contrasts, the audit, the canary and the extraction, each beside the untouched model."""
    texts = {CORPUS: [document for side in cell.sides.values() for document in side]}
    labels = {name: cell.labels | {"exposures": int(name == "trained"), "model": name} for name in found}
    scores = results.joined(((labels[name], of["scores"]) for name, of in found.items()), texts)
    measured = results.measure(scores)
    seen = results.seen_in_training(measured)
    canary = {name: of["canary"] for name, of in found.items()}
    works = {name: of["extraction"] for name, of in found.items()}
    return Report(
        title=f"A real model with exact truth: {cell.size}",
        question=f"What do the scores see in {cell.size}, trained further on {len(cell.sides['member'])} articles?",
        findings=list(_sentences(seen, canary)),
        sections=[
            Section("Three contrasts", tables=[_contrasts(measured)]),
            Section("An adapter, trained on other articles", tables=[found["untouched"]["audit"]]),
            Section("Canaries", tables=[rank.by_model(canary, title="canaries, detector loss", name="canary")]),
            Section(
                "Extraction",
                tables=[extract.results(works, "model", title="extraction", kept=(1, 0, 3))],
            ),
            limits(),
        ],
        facts=[
            ("Model", f"{config.model}, weights {cell.base.fingerprint if cell.base else ''}"),
            ("Texts", ", ".join(f"{len(side)} {kind}" for kind, side in cell.sides.items())),
            ("Training", f"once on each member, learning rate {config.learning_rate:g}, factors in bfloat16"),
            ("Seed", str(config.seed)),
        ],
        score=cell.size,
        metrics={f"{name}.untouched": auc for name, auc in results.tracked(measured.drop(seen.index)).items()}
        | results.tracked(seen),
        artifacts={"scores.parquet": scores, "results.parquet": measured},
    )


def _contrasts(measured: pd.DataFrame) -> Table:
    auc, half = measured["auc"], 1.96 * measured["auc_error"]
    shown = map(Estimate, auc, (auc - half).clip(lower=0), (auc + half).clip(upper=1))
    table = measured.assign(score=measured["detector"] + "." + measured["state"], shown=list(map(str, shown)))
    aucs = table.pivot(index=["exposures", "score"], columns="contrast", values="shown")
    names = list(reversed(TITLES))  # membership alone, the period alone, and both, as benchmarks have them
    lines = [
        [model, score, *aucs.loc[(times, score), names]]
        for model, times in (("trained", 1), ("untouched", 0))
        for score in SHOWN
        if (times, score) in aucs.index
    ]
    head = ["model", "score", *(name.replace("_", " ").replace(" vs ", "\nvs ") for name in names)]
    title = "AUC [95 % CI over the texts]"
    return plain(head, lines, words=(0, 1), title=title, name="contrasts", frame=measured, kept=(1, 2, 0, 3, 4))


def _sentences(seen: pd.DataFrame, canary: dict[str, pd.DataFrame]) -> Iterator[str]:
    scores = seen.set_index(["contrast", "score"])["auc"]
    for name in reversed(TITLES):
        of = scores[name]
        best = str(of.drop("combined.fsd").idxmax())
        first, combined, fsd = (shortened(of[score]) for score in (best, "combined.fsd", "loss.fsd"))
        title = TITLES[name].capitalize()
        yield f"{title}: {best} {first}, the best single score in hindsight; combined {combined}, FSD of loss {fsd}"
    trained, untouched = (p_value(float(rows["p"][rows["repetitions"] == 0].item())) for rows in canary.values())
    yield For(f"canaries: p {trained} by the trained model, {untouched} by the untouched")
