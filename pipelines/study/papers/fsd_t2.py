"""FSD, Table 2: models of one family in several sizes."""

from pipelines.study.spec import Study, of_models, plain

STUDY = Study(
    place="FSD, Table 2",
    title="Does the size of the model matter to FSD?",
    axes=(of_models("huggyllama/llama-7b", "huggyllama/llama-13b", "huggyllama/llama-30b"),),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("model", "state"),
    settings={"data.data": ("wikimia",)},
    note="Only one size is embedded: the small form sets the target beside its twin, which saw none of the texts.",
)
