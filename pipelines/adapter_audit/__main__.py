"""Was this text in the fine-tuning data of a model whose base is public?

`python -m pipelines.adapter_audit --model BASE --adapter URI --data FILE` scores texts with the adapter on and off. The
base is the perfect reference: it differs from the fine-tuned model in the fine-tuning alone. FILE has texts labelled 1
(in the fine-tuning data) and 0 (not), and may have texts without a label, which are judged. An adapter is registered
with its calibration, so that pipelines.detect judges further texts. `--demo` shows it offline.

Examples:
    fsd adapter-audit --model ./my-model --adapter ./adapter --data corpus.jsonl
    fsd adapter-audit --demo
"""

from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import flags
from pipelines.adapter_audit.config import AuditConfig, check
from pipelines.common.cli import command

if TYPE_CHECKING:
    from pipelines.common.dry_run import Plan


def main(config: AuditConfig) -> None:
    """Read the texts, load the models, score, judge, write, track and print."""
    from fsd import tracking
    from pipelines.adapter_audit import audit, demo, registration, report, texts
    from pipelines.common import outcome
    from pipelines.common.output import check_space, check_table_path, write_table
    from pipelines.common.report import run_name

    if config.demo:
        demo.main(config.seed)
        return
    check(config)
    if config.out:
        check_table_path(Path(config.out), config.data)
    parts, judged = texts.read(config)
    check_space(document.text for document in (*parts.validation, *parts.test, *judged))
    tracking.check_store()
    scorers, name, identity = audit.load(config)
    tags = {"task": "adapter audit", "model": config.model.model, "adapter": name}
    called = run_name(config.model.model, config.data, "adapter audit")
    with outcome.tracked_run(config, f"fsd-{config.domain}", called, params=flags(config), tags=tags) as run:
        results = audit.judge(parts, judged, scorers, config)
        report.record(run, results, config, name)
        if config.out:
            write_table(results.scores, Path(config.out))
        version = registration.register(run, results, config, identity) if config.adapter else None
        notes = report.conclusions(results, config.fpr)
        verdicts = results.scores[results.scores["split"] == "judged"]
        found = outcome.Outcome(
            notes[0],
            {"results": results.table, "verdicts": verdicts},
            notes,
            {"scores": config.out} if config.out else {},
            version,
            report=outcome.REPORT,
        )
        outcome.show(found, run, lambda: report.show(results, notes))


def plan(config: AuditConfig) -> "Plan":
    """What would be scored: every text by the base and by the fine-tuned model."""
    from fsd.errors import UsageError
    from pipelines.adapter_audit.texts import read
    from pipelines.common import dry_run
    from pipelines.common.detection import cheap, load_detectors
    from pipelines.common.output import check_table_path

    if config.demo:
        raise UsageError("dry-run must be without --demo, which always does the same; got both")
    check(config)
    if config.out:
        check_table_path(Path(config.out), config.data)
    parts, judged = read(config)
    detectors = [detector for detector in cheap(load_detectors(config.detection)) if not detector.paired]
    texts = [document.text for document in (*parts.validation, *parts.test, *judged)]
    sizes = f"{len(parts.validation):,} validation, {len(parts.test):,} test, {len(judged):,} to be judged"
    return dry_run.Plan(
        {
            "texts": f"{dry_run.files(config.data, len(texts))}: {sizes}",
            "fine-tuned model": str(config.adapter or config.tuned),
        },
        config.model,
        texts=texts,
        passes=dry_run.passes(detectors, texts, config.model),
        writes=dry_run.tracked(f"fsd-{config.domain}", "a registered adapter" if config.adapter else None, config.out),
    )


if __name__ == "__main__":
    command(AuditConfig, main, __doc__ or "", plan=plan)
