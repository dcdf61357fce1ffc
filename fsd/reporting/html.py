"""report.html: one self-contained page for readers who know neither the software nor the field."""

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from fsd.errors import printable
from fsd.reporting.report import Report, Section


def page(report: Report) -> str:
    """The report as one HTML page with its figures inside, without external resources and scripts.

    All text is escaped, and control characters and overrides of its direction are made visible.
    """
    first = {} if report.answer else {"answer": report.findings[:1], "findings": report.findings[1:]}
    pages = Environment(
        loader=PackageLoader("fsd.reporting"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("report.html").render({**vars(report), **first})


def limits(fpr: float | None = None) -> Section:
    """What such numbers never prove.

    Args:
        fpr: the chosen false-positive rate, if the report gives verdicts.
    """
    points = [
        "A high score is statistical evidence, not a copy found in the training data. Single texts can be misjudged in "
        "both directions.",
        "A text called “not shown” may still have been in the training data: the method often misses texts that the "
        "model saw only once.",
        "The error rates hold for texts of the same kind, language, length and period as the texts on which they were "
        "measured. For others they are unknown.",
        "A model may know a text through quotations, translations or copies elsewhere, although the text itself was "
        "never collected.",
        "A model may be familiar with the period of a text that it never read. Only contemporaries, texts of the "
        "members' own period that are known not to be in the training data, tell this from membership.",
        "If a classifier that never sees the model separates members from non-members as well, the result shows how "
        "the texts differ, and nothing about the training data.",
    ]
    if fpr is not None:
        points.insert(
            0,
            f"By design, about {fpr:.1%} of the texts that were not in the training data are called members; of 1,000 "
            f"such texts, about {fpr * 1000:.0f}.",
        )
    return Section("What this does not prove", points=points)
