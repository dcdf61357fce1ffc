"""The tests of a whole data set, each with one p-value, and what they say together."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pandas as pd

from fsd.data.documents import Document
from fsd.data.harness import is_task, training_split
from fsd.data.knowledge_cutoffs import labels_for
from fsd.data.near_duplicates import families, refuse_members, refuse_related, unrelated
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import parse_cutoff
from fsd.errors import UsageError, at_least
from fsd.evaluation.audit import blind
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.evaluation.metrics import holm
from fsd.evidence import dataset_tests
from fsd.progress import progress
from fsd.reporting.report import Against, Column, For, Report, Section, Table, marked, p_value
from fsd.scoring.deviation import evaluate
from fsd.scoring.model import Model, open_model
from fsd.views import Detector
from pipelines.common import job
from pipelines.common.experiment import cheap, load_detectors
from pipelines.common.job import Job
from pipelines.contamination import ContaminationConfig

ORDER, INFERENCE, CODEC, KERNEL = "exchangeability", "dataset inference", "CoDeC", "kernel divergence"


class Outcome(NamedTuple):
    """A test: its statistic and what that is compared with, and its p-value or the reason why it has none."""

    name: str
    statistic: str = "–"
    null: str = "–"
    p: float | None = None
    reason: str = ""


def prepare(config: ContaminationConfig) -> Job:
    """Read the texts and check them; the tests by sets of texts are counted roughly."""
    if not 0 < config.level < 1:
        raise UsageError(f"level must be between 0 and 1; got {config.level:g}")
    at_least(1, orders=config.orders, sets=config.sets)
    at_least(2, shard=config.shard)
    last, columns = parse_cutoff(config.cutoff), parse_columns(config.columns)
    suspect = read_files(config.files, columns)
    known = read_files(config.known, columns) if config.known else []
    if len(suspect) < 2 * config.shard:
        raise UsageError(f"data must fill 2 shards of {config.shard} texts; got {len(suspect)} texts")
    detectors = [d for d in cheap(load_detectors(config.detection)) if not d.paired]
    labels = labels_for(config.model.model, [*(replace(d, member=True) for d in suspect), *known], last=last)
    known, remarks = known if labels.hold else [], list[str]()
    if any(map(is_task, config.known)):  # the splits of a task have texts in common, which its user did not choose
        given, known = len(known), unrelated(suspect, known)
        remarks += [f"{given - len(known):,} known texts are near-duplicates of the data set and were left out"]
    if known:
        refuse_members(known)
        refuse_related(suspect, known)
        dataset_tests.equal_sets(len(one_per_family(suspect)), len(one_per_family(known)), config.sets)
        if not detectors:
            raise UsageError("dataset inference must have a detector with a base score; got none")
    texts = [document.text for document in suspect]
    scored = [*texts, *(document.text for document in known)]
    passes = Counter(job.passes(detectors, scored, config.model, states=("base",)))
    passes["base"] += (config.orders + 1) * len(texts) + (2 * len(texts) if known else 0)
    return Job(
        partial(run, config, suspect, known, detectors, labels.said, remarks),
        {
            "data set": job.files(config.files, len(texts)),
            **({"known non-members": job.files(config.known, len(known))} if known else {}),
        },
        config.model,
        texts=scored,
        passes=passes,
        trained=texts if known else (),
        training=config.training if known else None,
        experiment=f"fsd-{config.domain}",
        notes=[*labels.said, *remarks, *(["the tests by sets of texts are counted roughly"] if known else [])],
    )


def run(
    config: ContaminationConfig,
    suspect: Sequence[Document],
    known: Sequence[Document],
    detectors: Sequence[Detector],
    doubts: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> None:
    """Open the model, run the tests, track and print."""
    name, texts = config.model.model, [document.text for document in suspect]
    with job.stage("model"):
        model = open_model(config.model, config.api, config.answers or f"{config.files[0].rstrip('/')}.answers")
        if known:
            strict = config.detection.named
            detectors = model.job(detectors, texts, strict=strict, use="used in dataset inference").detectors
    title = job.run_name(name, config.files, "contamination")
    tags = {"task": "contamination", "model": name}
    with job.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        with job.stage("scoring"):
            p, z = dataset_tests.exchangeability(
                texts, model.scorers["base"], shard=config.shard, orders=config.orders, seed=config.seed
            )
            null = f"{config.orders} random orders a shard of {config.shard}"
            outcomes, verdict = [Outcome(ORDER, f"mean z {z:+z.2f}", null, p)], None
            if known:
                inference, verdict = inference_test(suspect, known, detectors, model, config.seed)
                outcomes.append(inference)
                if inference.reason:  # the others rest on the same comparison
                    outcomes += [Outcome(other, reason=inference.reason) for other in (CODEC, KERNEL)]
                else:
                    outcomes += rank_tests(one_per_family(suspect), one_per_family(known), model, config)
        job.deliver(partial(report, outcomes, verdict, config, doubts, remarks), tracked)


def report(
    outcomes: Sequence[Outcome],
    verdict: DatasetVerdict | None,
    config: ContaminationConfig,
    doubts: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> Report:
    """The tests, corrected for their number, and what they say together."""
    table, name, files = corrected(outcomes), config.model.model, ", ".join(config.files)
    lines = Table(
        table,
        [
            Column("test", "name"),
            Column("statistic", "statistic", words=True),
            Column("compared with", "null", words=True),
            Column("p", lambda line: p_value(line.p)),
            Column("p (Holm)", lambda line: p_value(line.p_holm)),
        ],
        caption="p is the chance of such a result, or a clearer one, if the model was not trained on the data set; "
        "p (Holm) is corrected for the number of tests.",
        title="tests of the data set as a whole",
        name="results",
        kept=(0, 4, 3, 1),
    )
    known = "Known non-members of another period or kind than the data set make the tests beside them void."
    other = training_split(config.files[0]) or "FILE"
    unknown = "Tests beside known non-members of the same kind (--known) would show what the order alone cannot."
    return Report(
        title="Was it in the training data? A data set as a whole",
        question=f"Was {name} trained on {files}?",
        findings=[*map(Against, doubts), *conclusions(table, verdict, config), *remarks],
        sections=[Section("Tests", tables=[lines])],
        facts=[
            ("Model", name),
            ("Data set", files),
            ("Known non-members", ", ".join(config.known) or "none"),
            ("Seed", str(config.seed)),
        ],
        changes=[known if config.known else unknown],
        next=[] if config.known else [f"fsd contamination {' '.join(config.files)} --model {name} --known {other}"],
        score=f"p {p_value(table['p_holm'].min())}",
        metrics={
            **{f"contamination_p/{o.name}": o.p for o in outcomes if o.p is not None},
            **({"audit/blind_auc": verdict.blind.value} if verdict and verdict.blind else {}),
            **({"contamination/share": verdict.share.value} if verdict and verdict.share else {}),
        },
    )


def one_per_family(documents: Sequence[Document]) -> list[str]:
    """The first text of each family, so that the texts of a set are independent."""
    first: dict[int, str] = {}
    for family, document in zip(families(documents), documents, strict=True):
        first.setdefault(family, document.text)
    return list(first.values())


def corrected(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row per test, the smallest p first, corrected for their number by Holm's method."""
    table = pd.DataFrame(outcomes).sort_values("p", kind="stable", ignore_index=True)
    return table.assign(p_holm=table["name"].map(holm({o.name: o.p for o in outcomes if o.p is not None})))


def inference_test(
    suspect: Sequence[Document], known: Sequence[Document], detectors: Sequence[Detector], model: Model, seed: int
) -> tuple[Outcome, DatasetVerdict]:
    """LLM Dataset Inference on the base scores of the detectors, with the AUC of the blind classifier."""
    texts = [document.text for document in (*suspect, *known)]
    scores = evaluate(texts, detectors, model.scorers, shown=True).base
    groups = [*families(suspect), *(len(suspect) + family for family in families(known))]
    cut = len(suspect)
    control = blind(texts, [at < cut for at in range(len(texts))], groups, seed=seed)
    verdict = dataset_verdict(
        {name: column[:cut] for name, column in scores.items()},
        {name: column[cut:] for name, column in scores.items()},
        suspect_groups=groups[:cut],
        known_groups=groups[cut:],
        blind=control,
        seed=seed,
    )
    null = f"{verdict.known_groups} known families, labels permuted"
    return Outcome(INFERENCE, f"difference {verdict.difference:+z.2f}", null, verdict.p, verdict.reason), verdict


def rank_tests(
    suspect: Sequence[str], known: Sequence[str], model: Model, config: ContaminationConfig
) -> list[Outcome]:
    """CoDeC and, with a model that can be fine-tuned, the kernel divergence score, by their ranks among known sets."""
    from fsd.models import adapters
    from fsd.models.finetuning import finetune
    from fsd.scoring.model_scorer import hidden_states

    chosen, others = dataset_tests.equal_sets(len(suspect), len(known), config.sets, seed=config.seed)
    groups = [[suspect[at] for at in chosen], *([known[at] for at in other] for other in others)]
    null = f"rank among {config.sets} known sets of {len(groups[0])} texts"
    base, shots, seed = model.scorers["base"], config.detection.shots, config.seed
    values = [dataset_tests.codec(group, base, shots=shots, seed=seed) for group in groups]
    codec = Outcome(CODEC, f"{values[0]:.2f}", null, dataset_tests.rank_among(values[0], values[1:]))
    if model.local is None:
        return [codec, Outcome(KERNEL, null=null, reason="it fine-tunes the model, which an API does not allow")]
    divergences = []
    with progress(len(groups), KERNEL, "set", shown=True) as bar:
        for group in groups:
            before = hidden_states(model.local, group, depth=1, tuned=False)
            finetune(model.local, group, config.training, seed=seed, shown=False)
            after = hidden_states(model.local, group, depth=1, tuned=True)
            divergences.append(dataset_tests.kernel_divergence(before, after))
            adapters.detach(model.local)
            bar.update()
    p = dataset_tests.rank_among(divergences[0], divergences[1:])
    return [codec, Outcome(KERNEL, f"{divergences[0]:.3g}", null, p)]


def conclusions(table: pd.DataFrame, verdict: DatasetVerdict | None, config: ContaminationConfig) -> list[str]:
    """The results in sentences, most important first."""
    model, rows = config.model.model, table.to_dict("records")
    shown = [f"{row['name']} (p {p_value(row['p_holm'])})" for row in rows if row["p_holm"] <= config.level]
    blind, share = (verdict.blind, verdict.share) if verdict else (None, None)
    if shown:
        found = f"evidence that {model} was trained on this data set, by {', '.join(shown)}"
        lines = [f"{found}, corrected for {table['p'].count()} tests"]
    else:
        lines = [f"no evidence that {model} was trained on this data set; this does not show that it was not"]
    if share and INFERENCE in table["name"][table["p_holm"] <= config.level].tolist():
        more = "used texts that score like unused ones are not counted, so it may be more"
        lines.append(For(f"the share of the data set that the model was trained on is {share}, by its scores; {more}"))
    exact = "is exact if the texts could as well have been published in any other order: not if they are sorted"
    lines.append(Against(f"{ORDER} {exact}"))
    if blind:
        apart = (
            f"a blind classifier, which never sees the model, distinguishes the two sets with AUC {blind}; the other "
            "tests hold as far as they differ in nothing but membership"
        )
        lines.append(marked(blind.low <= 0.5, apart))
    elif not config.known:
        lines.append(Against("without known non-members (--known) only the order was tested"))
    return lines + [Against(f"{row['name']} has no p-value: {row['reason']}") for row in rows if math.isnan(row["p"])]
