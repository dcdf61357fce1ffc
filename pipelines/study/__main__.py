"""A table or figure of the papers, on your own model and texts: python -m pipelines.study NAME, or --list.

Without a model and texts, a study runs in its small form, offline on the embedded model and corpus. Finished cells
are found again by their content, so that an interrupted study resumes and a second one runs nothing twice.
"""

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from fsd.config import AdapterConfig
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.tracking import Run, RunRecord
    from pipelines.study.cells import Done, Work
    from pipelines.study.grid import Request
    from pipelines.study.model_pool import Workbench


@dataclass(frozen=True)
class StudyConfig:
    """Which study, on which model and texts."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """Name of the study, as --list gives it."""
    list: bool = False
    """Say which studies there are, what each needs and whether it can run here."""
    model: tuple[str, ...] = ()
    """embedded, folders or hub ids; several for a study of models. Default: embedded, in full the paper's models."""
    data: tuple[str, ...] = ()
    """Files or published benchmarks such as wikimia:64, together one benchmark; in a study of benchmarks one each."""
    other: tuple[str, ...] = ()
    """Texts of another domain, for the study that trains on them."""
    frequencies: tuple[str, ...] = ()
    """Token-frequency table for dc_pdd, made by pipelines.frequencies; several for the study of them."""
    columns: str = ""
    """Other column names, e.g. text=Example_A,label=Label,group=ID."""
    domain: str = "arxiv"
    """Names the experiment fsd-<domain>."""
    scale: Literal["small", "full"] = "small"
    """small runs in a minute on the embedded model; full is the paper's grid."""
    reference_model: str | None = None
    """Smaller model of the same family for the detector reference; embedded has its own."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or spread: over all cards, then memory, for a model larger than a card."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of training and scoring; auto is bfloat16 on cuda, else float32."""
    bits: Literal[4, 8] | None = None
    """Bits to round the weights to, for a model larger than the memory; needs bitsandbytes."""
    max_batch_tokens: int | None = None
    """Padded tokens per forward pass; by default what suits the device."""
    training: AdapterConfig = field(default_factory=AdapterConfig)
    seed: int = 42
    """Of the split, the adapter and the intervals."""


def main(config: StudyConfig) -> None:
    """Plan the cells, run those that are not finished yet, and set the paper's table and figure."""
    from fsd import tracking
    from fsd.errors import UsageError
    from pipelines.study import catalogue as _catalogue
    from pipelines.study import cells as _cells
    from pipelines.study import grid as _plan
    from pipelines.study import model_pool as _workbench
    from pipelines.study import output as _publishing
    from pipelines.study import spec as studies

    if config.list:
        print(_catalogue.catalogue())
        return
    if not config.name:
        raise UsageError(f"study must be one of {', '.join(studies.names())}; none is given")
    name, study = studies.load(config.name)
    if config.scale == "small":
        study = _cells.small_form(study)
    cells = _plan.plan(name, study, _request(config))
    with _workbench.workbench() as bench:
        work = [_cells.work(cell, study, bench) for cell in cells]
        tags = {"study": name, "plan": hashlib.sha256("".join(w.key for w in work).encode()).hexdigest()}
        abandoned = _abandoned(config.domain, tags)
        params = {"cells": len(work), "scale": config.scale, "model": config.model, "data": config.data}
        with tracking.run(f"fsd-{config.domain}", f"{name} ({config.scale})", params=params, tags=tags) as run:
            done = run_all(name, work, bench, run, config.domain, abandoned)
            print(_publishing.publish(run, study, done))


def _request(config: StudyConfig) -> "Request":
    from fsd.config import ModelConfig
    from pipelines.study.grid import Request

    options = ModelConfig(
        revision=config.revision,
        reference_model=config.reference_model,
        device=config.device,
        dtype=config.dtype,
        bits=config.bits,
        max_batch_tokens=config.max_batch_tokens,
    )
    return Request(
        model=config.model,
        data=config.data,
        other=config.other,
        frequencies=config.frequencies,
        columns=config.columns,
        domain=config.domain,
        scale=config.scale,
        options=options,
        training=config.training,
        seed=config.seed,
    )


def _abandoned(domain: str, tags: Mapping[str, object]) -> set[str]:
    """Runs of the same plan that did not come to their end."""
    from fsd.tracking import find_runs

    return {r.id for status in ("KILLED", "FAILED", "RUNNING") for r in find_runs(f"fsd-{domain}", tags, status=status)}


def run_all(
    name: str,
    work: "Sequence[Work]",
    bench: "Workbench",
    parent: "Run",
    domain: str,
    abandoned: "set[str]",
) -> "list[Done]":
    """Every cell, those of one model together; finished ones are taken from earlier runs, equal ones run once.

    Args:
        name: of the study.
        work: the cells.
        bench: loads the models.
        parent: the study's run.
        domain: names the experiment.
        abandoned: runs of this study that were interrupted; their cells move to this run.
    """
    from fsd.progress import progress
    from fsd.tracking import find_runs

    known = {r.tags.get("cell", ""): r for r in reversed(find_runs(f"fsd-{domain}", {"kind": "cell"}))}
    order = sorted(range(len(work)), key=lambda at: work[at].cell.config.model.model)
    finished: dict[int, Done] = {}
    by_key: dict[str, Done] = {}
    with progress(len(work), name, "cell") as bar:
        for at in order:
            item = work[at]
            begun = time.perf_counter()
            record = known.get(item.key)
            if item.key in by_key:
                done = _again(item, by_key[item.key])
            elif record is not None:
                done = _recall(item, record, parent, abandoned)
            else:
                done = _run(name, item, bench, parent, domain)
            finished[at] = by_key[item.key] = done
            bar.update(1)
            how = "reused" if done.reused else f"{time.perf_counter() - begun:.1f} s"
            print(f"{name} {len(finished)}/{len(work)}: {item.cell.name} ({how})", file=sys.stderr)
    return [finished[at] for at in range(len(work))]


def _again(item: "Work", done: "Done") -> "Done":
    from dataclasses import replace

    return replace(done, cell=item.cell, reused=True)


def _recall(item: "Work", record: "RunRecord", parent: "Run", abandoned: "set[str]") -> "Done":
    import json

    from fsd.tracking import Run
    from pipelines.study.cells import Done

    if record.parent in abandoned:
        Run(parent.store, record.id).set_tags({"mlflow.parentRunId": parent.id})
    return Done(item.cell, record.id, record.metrics, json.loads(record.tags.get("left_out", "{}")), reused=True)


def _run(name: str, item: "Work", bench: "Workbench", parent: "Run", domain: str) -> "Done":
    from dataclasses import asdict

    from fsd import tracking
    from pipelines.study.cells import Done, run_cell

    config = item.cell.config
    tags = {"study": name, "kind": "cell", "cell": item.key, "base_model": config.model.model}
    params = {"cell": item.cell.place, **asdict(config.training), "model": config.model.model, "data": config.data.data}
    with tracking.run(f"fsd-{domain}", f"{name}: {item.cell.name}", params=params, tags=tags, parent=parent) as run:
        metrics, left_out = run_cell(item, bench, run)
    return Done(item.cell, run.id, metrics, left_out, reused=False)


if __name__ == "__main__":
    command(StudyConfig, main, __doc__ or "")
