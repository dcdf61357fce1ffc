"""DC-PDD, Figure 3: size of the model and length of the texts."""

from pipelines.study.spec import Axis, Study, of_models, plain

LENGTHS = (64, 128, 256, 512)
SMALL = (16, 32, 64)

STUDY = Study(
    place="DC-PDD, Figure 3",
    title="How do size of the model and length of the texts matter?",
    axes=(
        of_models("EleutherAI/pythia-1.4b", "EleutherAI/pythia-2.8b", "EleutherAI/pythia-6.9b"),
        Axis(
            "words",
            {str(words): {"texts.words": words} for words in LENGTHS},
            {str(words): {"texts.words": words} for words in SMALL},
        ),
    ),
    detectors=plain("perplexity", "zlib", "min_k", "min_k_pp", "dc_pdd"),
    rows=("model", "detector"),
    columns=("words",),
    states=("base",),
    figure="curve",
    x="words",
    settings={"data.data": ("bookmia",)},
    needs="--frequencies (pipelines.frequencies)",
    note="Texts shorter than the length are left out. Only one size is embedded: the small form has target and twin.",
)
