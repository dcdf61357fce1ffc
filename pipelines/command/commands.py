"""The commands of `fsd`, by the question that they answer."""

from collections.abc import Mapping

from fsd.plugs import Command, Evidence, plugs

MEMBERS = "texts in the pretraining data"
PREPARATION = "research and preparation"
OWN = {
    "run": Command(
        MEMBERS,
        "pipelines.fsd",
        "fine-tune on unseen texts; every detector before and after",
        Evidence(
            numbers={
                "auc": "area under the ROC curve of the best score",
                "low": "lower end of its 95 % interval",
                "high": "upper end of its 95 % interval",
                "blind": "the same area of a classifier that never sees the model",
                "control": "the same area of the control model",
                "found": "share of the training texts found at 5 % false calls",
            },
            inputs=("data", "members", "nonmembers", "unseen", "frequencies"),
            tests="AUC of the best score with its 95 % interval, beside a blind classifier and the control model",
        ),
    ),
    "detect": Command(
        MEMBERS,
        "pipelines.detect",
        "was this text a member? verdicts with error rates",
        Evidence(
            numbers={
                "found": "texts called members",
                "share": "share of the judged texts that are called",
                "judged": "texts with a verdict",
                "selected": "texts selected at the false discovery rate",
                "p": "p-value of all texts together, with --known",
            },
            inputs=("files", "known"),
            tests="conformal p-value of each text, after the domain check; with --known also all texts together",
            level="fpr",
        ),
    ),
    "score": Command(MEMBERS, "pipelines.score", "base scores of any texts, by a local model or a completions API"),
    "ui": Command(MEMBERS, "pipelines.ui", "open the runs in MLflow's pages"),
    "tune": Command(PREPARATION, "pipelines.tune", "choose detector or adapter settings with Optuna"),
    "collect": Command(PREPARATION, "pipelines.collect", "collect texts published after a model's knowledge cutoff"),
    "frequencies": Command(
        PREPARATION, "pipelines.frequencies", "count token frequencies of a reference corpus for DC-PDD"
    ),
}


def commands() -> dict[str, Command]:
    """Name → command, those of extensions included."""
    available = dict(OWN)
    # A command of an extension may replace one of these, as a later definition does.
    for plug in plugs():
        available |= plug.commands
    return available


def evidences() -> dict[str, Evidence]:
    """Name of a command whose answer is evidence → what is to be known of that."""
    return {name: command.evidence for name, command in commands().items() if command.evidence.numbers}


def by_question(available: Mapping[str, Command]) -> dict[str, dict[str, str]]:
    """Question → name of a command → what it does; preparation comes last."""
    groups: dict[str, dict[str, str]] = {}
    for name, command in available.items():
        groups.setdefault(command.question, {})[name] = command.about
    return dict(sorted(groups.items(), key=lambda group: group[0] == PREPARATION))
