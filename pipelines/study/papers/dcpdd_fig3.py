"""DC-PDD paper (arXiv 2409.14781), Figure 3: model size and text length."""

from pipelines.study.spec import Study, model_axis, vary, with_defaults

STUDY = Study(
    place="DC-PDD, Figure 3",
    title="How much do model size and text length matter?",
    axes=(
        model_axis("Qwen/Qwen1.5-1.8B", "Qwen/Qwen1.5-4B", "Qwen/Qwen1.5-7B", "Qwen/Qwen1.5-14B"),
        vary("words", "texts.words", (64, 128, 256, 512), (16, 32, 64)),
    ),
    detectors=with_defaults("perplexity", "zlib", "min_k", "min_k_pp", "dc_pdd"),
    rows=("model", "detector"),
    columns=("words",),
    states=("base",),
    figure="curve",
    x="words",
    needs="--data patentmia:FILE, and --frequencies, one for all models of a tokenizer (pipelines.frequencies)",
    note="The paper varies size and length one at a time; here they are crossed. Texts shorter than a length are "
    "dropped. Only one model size is embedded: at the small scale the models are the target and its twin.",
)
