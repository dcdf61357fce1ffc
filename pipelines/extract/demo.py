"""Extraction on the embedded model, which reads a text many times in front of you."""

ABSTRACTS, CONTROLS, COPIES = 5, 40, 100


def main() -> None:
    """Train the embedded model on five abstracts, and extract them; forty that it did not read are the control."""
    from fsd.config import ModelConfig, Recipe
    from fsd.data.embedded import corpus
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining
    from pipelines.common import outcome
    from pipelines.extract import report, works

    texts = [document.text for document in corpus() if not document.member][: ABSTRACTS + CONTROLS]
    read, unread = texts[:ABSTRACTS], texts[ABSTRACTS:]
    model = language_model.load(ModelConfig(cache="none"))
    names = [f"read {COPIES} times", "never read"]
    cut = works.cut(names, [" ".join(read), " ".join(unread)], model.tokens, works.Windows())
    before = works.by_model(cut, model, [works.PLAIN])
    continue_pretraining(model, read * COPIES, Recipe(batch_size=ABSTRACTS, learning_rate=3e-3))
    after = works.by_model(cut, model, [works.PLAIN])
    lines = []
    for state, (extraction,) in (("after", after), ("before", before)):
        for row, name in zip(report.rows([extraction]), names, strict=True):
            lines.append([state, name, *row[2:]])
    headings = ["training", "text", *report.HEADINGS[2:]]
    notes = report.conclusions(after[0], "the embedded model")
    notes += ["before the training, neither text could be extracted: the model had not read them"]
    outcome.show_table("extraction from the embedded model", headings, lines, notes, left=(0, 1))
