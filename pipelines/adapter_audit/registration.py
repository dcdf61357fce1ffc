"""The audited adapter as a registered model, which judges further texts."""

from dataclasses import replace
from pathlib import Path

from fsd import tracking
from fsd.data.documents import digest
from fsd.evaluation.metrics import auc, by_key
from fsd.evaluation.sentences import AuditSummary
from fsd.models.language_model import BaseIdentity
from fsd.scoring.scorers import TABLE, frequency_file
from fsd.tracking import Run, Version
from pipelines.adapter_audit.audit import AuditResults
from pipelines.adapter_audit.config import AuditConfig
from pipelines.common import adapter_files
from pipelines.common.adapter_files import AUDITED
from pipelines.common.run_log import SERVING


def register(run: Run, results: AuditResults, config: AuditConfig, identity: BaseIdentity) -> Version | None:
    """Register the adapter with the calibration as a version of fsd-<domain>, for pipelines.detect and MLflow.

    It does not become champion if a blind classifier explains the result, nor in place of an audit of another adapter.

    Args:
        run: the open run.
        results: of the audit.
        config: of the audit, with an adapter.
        identity: of the base.

    Returns:
        The version; None if it could not be stored, which the run raises at its end.
    """
    best = results.calibration.detector
    reached = by_key(results.table)[best, AUDITED, "auc"].estimate
    blind = results.audit.blind
    summary = AuditSummary(best, reached, blind.auc, blind.reason, state=AUDITED)
    validation = results.scores[results.scores["split"] == "validation"]
    return tracking.register(
        run,
        f"fsd-{config.domain}",
        tracking.fetch_adapter(str(config.adapter)),
        SERVING,
        validation_score=auc(validation["label"] == 1, validation[f"{best}.{AUDITED}"]),
        files=files(results, config, summary),
        tags={
            "base_model": identity.id,
            "base_revision": identity.revision or "local",
            "base_fingerprint": identity.fingerprint,
            "adapter": config.adapter,
            "detector": best,
            "benchmark": f"validation {digest(results.parts.validation)}, test {digest(results.parts.test)}",
            "judging": f"audit of {config.adapter}, seed {config.seed}, state {AUDITED}",
        },
        barred=summary.sentence if summary.explains else "",
    )


def files(results: AuditResults, config: AuditConfig, summary: AuditSummary) -> dict[str, str | Path]:
    """The files that travel with the adapter; none of texts that it was trained on, which are the question."""
    table = frequency_file(config.model)
    setup = adapter_files.setup(
        replace(config.model, frequencies=None, cache=None),
        domain=config.domain,
        detectors=results.detectors,
        shots=config.detection.shots,
        seed=config.seed,
        training=None,
    )
    return {
        adapter_files.CALIBRATION: results.calibration.to_json(),
        adapter_files.SETUP: setup,
        adapter_files.AUDIT: summary.to_json(),
        **({TABLE: table} if table else {}),
    }
