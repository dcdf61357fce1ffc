"""Was this text in the fine-tuning data of a model whose base is public?

`python -m pipelines.adapter_audit --model BASE --adapter URI --data FILE` scores texts with the adapter on and off. The
base is the perfect reference: it differs from the fine-tuned model in the fine-tuning alone. FILE has texts labelled 1
(in the fine-tuning data) and 0 (not), and may have texts without a label, which are judged. An adapter is registered
with its calibration, so that pipelines.detect judges further texts. `--demo` shows it offline.

Examples:
    fsd adapter-audit --model ./my-model --adapter ./adapter --data corpus.jsonl
    fsd adapter-audit --demo
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.adapter_audit.config import AuditConfig
from pipelines.common.cli import command
from pipelines.common.job import Job

if TYPE_CHECKING:
    from fsd.data.documents import Document
    from fsd.data.splitting import Split


def prepare(config: AuditConfig) -> Job:
    """Read the texts, and check the settings: every text is scored by the base and by the fine-tuned model."""
    from pipelines.adapter_audit import audit, demo
    from pipelines.common import job
    from pipelines.common.experiment import cheap, load_detectors
    from pipelines.common.output import check_table_path

    if config.demo:
        return demo.prepare(config.seed)
    parts, judged = audit.read(config)
    if config.out:
        check_table_path(Path(config.out), config.data)
    detectors = [detector for detector in cheap(load_detectors(config.detection)) if not detector.paired]
    texts = [document.text for document in (*parts.validation, *parts.test, *judged)]
    sizes = f"{len(parts.validation):,} validation, {len(parts.test):,} test, {len(judged):,} to be judged"
    return Job(
        partial(run, config, parts, judged),
        {
            "texts": f"{job.files(config.data, len(texts))}: {sizes}",
            "fine-tuned model": str(config.adapter or config.tuned),
        },
        config.model,
        texts=texts,
        passes=job.passes(detectors, texts, config.model),
        writes=["a registered adapter" if config.adapter else None, config.out],
        experiment=f"fsd-{config.domain}",
    )


def run(config: AuditConfig, parts: "Split", judged: "Sequence[Document]") -> None:
    """Load the models, score, judge, write, track and print."""
    from pipelines.adapter_audit import audit, report
    from pipelines.common.job import publish, run_name, show, tracked_run
    from pipelines.common.output import write_table

    scorers, name, identity = audit.load(config)
    tags = {"task": "adapter audit", "model": config.model.model, "adapter": name}
    title = run_name(config.model.model, config.data, "adapter audit")
    with tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        results = audit.judge(parts, judged, scorers, config)
        found = report.report(results, config, name)
        publish(found, tracked)
        if config.out:
            write_table(results.scores, Path(config.out))
        version = report.register(tracked, results, config, identity) if config.adapter else None
        show(found, tracked, version)


if __name__ == "__main__":
    command(AuditConfig, prepare, __doc__ or "")
