"""FSD paper (arXiv 2410.10880), Table 3: books."""

from pipelines.study.spec import Study, data_axis, numbers, with_defaults

PAPER = """
huggyllama/llama-7b | booktection | perplexity | - | base auc .710, fsd auc .910
huggyllama/llama-7b | booktection | perplexity | - | base accuracy .669, fsd accuracy .854
huggyllama/llama-7b | bookmia | perplexity | - | base accuracy .59, fsd accuracy .965, base auc .564, fsd auc .995
huggyllama/llama-7b | booktection | lowercase | - | base accuracy .645, fsd accuracy .73, base auc .664, fsd auc .770
huggyllama/llama-7b | bookmia | lowercase | - | base accuracy .67, fsd accuracy .692, base auc .708, fsd auc .779
huggyllama/llama-7b | booktection | zlib | - | base accuracy .653, fsd accuracy .864, base auc .568, fsd auc .920
huggyllama/llama-7b | bookmia | zlib | - | base accuracy .574, fsd accuracy .986, base auc .474, fsd auc .999
huggyllama/llama-7b | booktection | min_k | - | base accuracy .681, fsd accuracy .821, base auc .716, fsd auc .880
huggyllama/llama-7b | bookmia | min_k | - | base accuracy .595, fsd accuracy .939, base auc .587, fsd auc .979
"""
"""Printed in FSD (arXiv 2410.10880), Table 3; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Table 3",
    title="Can passages of copyrighted books be distinguished from passages of new ones?",
    axes=(data_axis("bookmia", "booktection"),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("data", "metric", "state"),
    metrics=("accuracy", "auc"),
    model="huggyllama/llama-7b",
    settings={"data.validation": 0.1},
    small_settings={"data.validation": 0.2},
    note="The accuracy threshold is chosen on the validation texts. "
    "The paper takes 500 texts of each class for it: 10 % are 987 of BookMIA and about 1,640 of BookTection. The "
    "benchmarks of the small scale hold no books.",
    paper=numbers(PAPER),
)
