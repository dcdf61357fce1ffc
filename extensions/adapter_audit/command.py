"""The command `fsd adapter-audit`: read and check, score and judge, register and print."""

import tempfile
from functools import partial
from pathlib import Path

from extensions.adapter_audit.audit import Audit, Inputs, measure, texts_of
from extensions.adapter_audit.demo import demo
from extensions.adapter_audit.report import report
from extensions.adapter_audit.settings import AuditConfig
from fsd.api import (
    Answer,
    BaseIdentity,
    Run,
    Version,
    copy_adapter,
    on_your_word,
    open_model,
    outline,
    read_otherwise,
    tracking,
)
from pipelines.api import (
    OWN_TEXTS,
    Job,
    Stated,
    adapter_files,
    check_table_path,
    examination,
    files,
    publish,
    shots_of,
    show,
    stage,
    write_table,
)


def prepare(config: AuditConfig) -> Job:
    """Read the texts, and check the settings: every text is scored by the base and by the fine-tuned model."""
    if config.demo:
        return Job(partial(demo, config.seed), {"texts": Stated("100 embedded abstracts", {"texts": 100})})
    inputs = texts_of(config)
    check_table_path(config.out, config.places)
    documents = inputs.documents
    parts = inputs.parts
    sizes = {"validation": len(parts.validation), "test": len(parts.test), "to be judged": len(inputs.judged)}
    words = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
    reads = {"texts": files(config.places, len(documents), f": {words}", **sizes), "fine-tuned model": config.name}
    further = {}
    if config.tuned:
        further["tuned"] = config.tuned
    writes: list[object] = [config.out]
    if config.adapter and not inputs.rejected:
        writes.insert(0, "a registered adapter")
    return Job(
        partial(run, config, inputs),
        reads,
        config.model,
        texts=documents.texts,
        passes=inputs.plan(outline(config.model), config.detection).passes,
        writes=writes,
        experiment=f"fsd-{config.domain}",
        notes=[] if inputs.rejected else [OWN_TEXTS],
        adapter=config.adapter,
        further=further,
        read=read_otherwise(documents),
    )


def run(config: AuditConfig, inputs: Inputs) -> None:
    """Load the models, score, judge, write, track and print."""
    with stage("model"):
        # Before the base is loaded, so that a wrong name is refused within a second.
        adapter = adapter_files.fetched(config.adapter)
        model = open_model(config.model, adapter=adapter, tuned=config.tuned).audited()
    with examination(config, "adapter audit", config.places, adapter=config.name) as tracked:
        with stage("scoring"):
            audit = measure(inputs, model, config)
        with stage("recording"):
            identity = model.language_model.identity
            word = on_your_word(adapter, identity.id, identity.revision or None) if adapter else ""
            result = report(audit, config, identity.fingerprint, word)
            publish(result, tracked)
            write_table(audit.scores, config.out)
            # A model that was tuned as a whole is no adapter that could be registered, and `detect` reads no pairs.
            version = None
            if config.adapter and not inputs.rejected:
                version = register(tracked, audit, config, identity)
        show(result, tracked, version)


def register(run: Run, audit: Audit, config: AuditConfig, identity: BaseIdentity) -> Version | None:
    """Register the adapter with the calibration as a version of fsd-<domain>, for `fsd detect` and MLflow.

    None of the texts that it was trained on, which are the question, travels with it. It does not become champion if a
    blind classifier explains the result, nor in place of an audit of another adapter.
    """
    # It loads PyTorch, for which a dry run need not wait.
    from pipelines.api import register_adapter

    shots = shots_of(config.detection, config.model.model)
    files = adapter_files.contents(
        config.model, shots, audit.detectors, audit.summary, audit.calibration, domain=config.domain, seed=config.seed
    )
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        # Peft records the name of the base alone: what is registered has its hash.
        copy_adapter(tracking.fetch_adapter(config.name), identity, Path(scratch))
        return register_adapter(
            run,
            Answer(audit.results),
            identity,
            f"audit of {config.name}, seed {config.seed}",
            {"adapter": config.name},
            name=f"fsd-{config.domain}",
            adapter=Path(scratch),
            files=files,
        )
