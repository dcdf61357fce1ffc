"""The commands of `fsd`, by the question that they answer."""

from fsd.plugs import Command, plugs

MEMBERS = "texts in the pretraining data"
PREPARATION = "research and preparation"
OWN = {
    "run": Command(MEMBERS, "pipelines.fsd", "fine-tune on unseen texts; every detector before and after"),
    "detect": Command(MEMBERS, "pipelines.detect", "was this text a member? verdicts with error rates"),
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


def by_question(available: dict[str, Command]) -> dict[str, dict[str, str]]:
    """Question → name of a command → what it does; preparation comes last."""
    groups: dict[str, dict[str, str]] = {}
    for name, command in available.items():
        groups.setdefault(command.question, {})[name] = command.about
    groups[PREPARATION] = groups.pop(PREPARATION)
    return groups
