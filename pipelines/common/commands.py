"""The commands of `fsd`, by the question that they answer."""

GROUPS = {
    "texts in the pretraining data": {
        "run": ("pipelines.fsd", "fine-tune on unseen texts; every detector before and after"),
        "detect": ("pipelines.detect", "was this text a member? verdicts with error rates"),
        "score": ("pipelines.score", "base scores of any texts, by a local model or a completions API"),
        "ui": ("pipelines.ui", "open the runs in MLflow's pages"),
    },
    "one book, a benchmark, fine-tuning data, or texts not yet published": {
        "extract": ("pipelines.evidence.extract", "can passages of this book be extracted? beside a control"),
        "contamination": ("pipelines.evidence.contamination", "was this benchmark, as a whole, in the training data?"),
        "adapter-audit": (
            "pipelines.evidence.adapter_audit",
            "was this in the fine-tuning data of a model with a known base?",
        ),
        "canary": ("pipelines.evidence.canary", "publish random canaries; was a model trained on them? exact"),
    },
    "evidence that the other side can check": {
        "bundle": ("pipelines.evidence.bundle", "the evidence of a run, with hashes, in one folder or zip file"),
        "verify": ("pipelines.evidence.verify", "is a bundle as it was made? and do its numbers come out again?"),
    },
    "research and preparation": {
        "overlap": ("pipelines.evidence.overlap", "how much of these texts stands in that corpus, word for word?"),
        "compare": ("pipelines.research.compare", "mean and interval of every score over seeds and runs"),
        "tune": ("pipelines.tune", "choose detector or adapter settings with Optuna"),
        "study": ("pipelines.research.study", "the papers' tables; our own: lab, real, domains, truth"),
        "collect": ("pipelines.collect", "collect texts published after a model's knowledge cutoff"),
        "pretrain": ("pipelines.research.pretrain", "pretrain a small model whose members are known"),
        "frequencies": ("pipelines.research.frequencies", "count token frequencies of a reference corpus for DC-PDD"),
    },
}
"""Question → command → its module and what it does."""
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}
