"""The command `fsd`: `fsd run` is `python -m pipelines.fsd`, `fsd tune` is `python -m pipelines.tune`, and so on."""

import runpy
import sys
from importlib.metadata import version
from importlib.util import find_spec

from fsd.errors import one_of
from pipelines.common.pages import page

GROUPS = {
    "texts in the pretraining data": {
        "run": (
            "pipelines.fsd",
            "fine-tune on unseen texts and compare every detector before and after",
        ),
        "detect": (
            "pipelines.detect",
            "was this text a member? verdicts with error rates from a registered adapter",
        ),
        "score": (
            "pipelines.score",
            "base scores of any texts, by a local model or a completions API",
        ),
        "ui": ("pipelines.ui", "open the runs in MLflow's pages"),
    },
    "one book, a benchmark, fine-tuning data, or texts not yet published": {
        "extract": (
            "pipelines.evidence.extract",
            "can passages of this book be extracted? beside a control",
        ),
        "contamination": (
            "pipelines.evidence.contamination",
            "was this benchmark, as a whole, in the training data?",
        ),
        "adapter-audit": (
            "pipelines.evidence.adapter_audit",
            "was this in the fine-tuning data of a model with a known base?",
        ),
        "canary": (
            "pipelines.evidence.canary",
            "publish random canaries, and test exactly whether a model was trained on them",
        ),
    },
    "research and preparation": {
        "overlap": (
            "pipelines.evidence.overlap",
            "how much of these texts stands in that corpus, word for word?",
        ),
        "compare": (
            "pipelines.research.compare",
            "mean and interval of every score over seeds and runs",
        ),
        "tune": (
            "pipelines.tune",
            "choose detector or adapter settings with Optuna",
        ),
        "study": (
            "pipelines.research.study",
            "the papers' tables and figures; our own: lab, real, domains, truth",
        ),
        "collect": (
            "pipelines.collect",
            "collect texts published after a model's knowledge cutoff",
        ),
        "pretrain": (
            "pipelines.research.pretrain",
            "pretrain a small model whose members are known",
        ),
        "frequencies": (
            "pipelines.research.frequencies",
            "count token frequencies of a reference corpus for DC-PDD",
        ),
    },
}
"""Question → command → its module and what it does."""
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}


def main() -> None:
    """Run the pipeline that the first argument names with the arguments after it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: fsd COMMAND [OPTIONS]\n\nWas this text in that model's training data?")
        for question, commands in GROUPS.items():
            print(f"\n{question}:")
            for command, (_, about) in commands.items():
                print(f"  {command:<14} {about}")
        print("\n`fsd COMMAND --help` lists the options of a command.")
        print("Which to take; the other pages, docs/NAME in messages, are beside it:")
        print(f"  {page('questions.md')}")
    elif name == "--version":
        print(f"fsd {version('fsd')}")
    elif name in COMMANDS:
        # The command's own messages begin with it.
        sys.argv = [f"fsd {name}", *sys.argv[2:]]
        module, _ = COMMANDS[name]
        # The help quotes the file that it takes for that of the settings.
        if "-h" in sys.argv or "--help" in sys.argv:
            sys.modules["__main__"].__file__ = _file(module)
        runpy.run_module(module, run_name="__main__")
    else:
        print(f"error: {one_of('command', COMMANDS, name)}", file=sys.stderr)
        sys.exit(2)


def _file(module: str) -> str | None:
    spec = find_spec(module)
    if spec and spec.submodule_search_locations:
        spec = find_spec(f"{module}.__main__")
    return spec.origin if spec else None


if __name__ == "__main__":
    main()
