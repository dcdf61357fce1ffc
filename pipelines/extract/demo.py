"""Extraction on the embedded model, which is trained on a text many times in front of you."""

from pipelines.common.job import Job

ABSTRACTS, CONTROLS, COPIES = 5, 40, 100


def prepare() -> Job:
    """Nothing to check: the demonstration is always the same."""
    return Job(run, {"works": f"{ABSTRACTS} embedded abstracts, and {CONTROLS} as control"})


def run() -> None:
    """Train the embedded model on five abstracts, and extract them; forty that it never saw are the control."""
    from fsd.config import ModelConfig, Recipe
    from fsd.data.embedded import corpus
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining
    from fsd.reporting.report import Column, Report, Section, Table
    from pipelines.common import outcome
    from pipelines.extract import report, works

    texts = [document.text for document in corpus() if not document.member][: ABSTRACTS + CONTROLS]
    read, unread = texts[:ABSTRACTS], texts[ABSTRACTS:]
    model = language_model.load(ModelConfig(cache="none"))
    names = [f"seen {COPIES} times", "never seen"]
    cut = works.cut(names, [" ".join(read), " ".join(unread)], model.tokens, works.Windows())
    before = works.by_model(cut, model, [works.PLAIN])
    continue_pretraining(model, read * COPIES, Recipe(batch_size=ABSTRACTS, learning_rate=3e-3))
    after = works.by_model(cut, model, [works.PLAIN])
    lines = [
        (state, name, [work])
        for state, (extraction,) in (("after", after), ("before", before))
        for name, work in zip(names, (extraction.work, *extraction.controls), strict=True)
    ]
    notes = report.conclusions(after[0], "the embedded model")
    notes += ["before the training, neither text could be extracted: the model had seen neither"]
    columns = [Column("training", lambda line: line[0]), *report.columns()[1:]]
    shown = Table(lines, columns, title="extraction from the embedded model", name="results", kept=(1, 0, 3))
    outcome.show(Report(findings=notes, sections=[Section("", tables=[shown])]))
