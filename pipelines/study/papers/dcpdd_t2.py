"""DC-PDD paper (arXiv 2409.14781), Tables 2 and 3: DC-PDD compared with other detectors, with paired tests."""

from pipelines.study.spec import DetectorSpec, Study, data_axis, model_axis, numbers, with_defaults

PAPER = """
GPT-3 | bookmia | perplexity | - | base auc .635, base tpr_at_5fpr .224
Baichuan-13B | patentmia | perplexity | - | base auc .608, base tpr_at_5fpr .166
Qwen/Qwen1.5-14B | patentmia | perplexity | - | base auc .599, base tpr_at_5fpr .159
facebook/opt-6.7b | wikimia:128 | perplexity | - | base auc .625, base tpr_at_5fpr .130
EleutherAI/pythia-6.9b | wikimia:128 | perplexity | - | base auc .651, base tpr_at_5fpr .144
huggyllama/llama-13b | wikimia:128 | perplexity | - | base auc .678, base tpr_at_5fpr .216
EleutherAI/gpt-neox-20b | wikimia:128 | perplexity | - | base auc .707, base tpr_at_5fpr .180
GPT-3 | bookmia | lowercase | - | base auc .671, base tpr_at_5fpr .240
facebook/opt-6.7b | wikimia:128 | lowercase | - | base auc .587, base tpr_at_5fpr .094
EleutherAI/pythia-6.9b | wikimia:128 | lowercase | - | base auc .605, base tpr_at_5fpr .130
huggyllama/llama-13b | wikimia:128 | lowercase | - | base auc .606, base tpr_at_5fpr .158
EleutherAI/gpt-neox-20b | wikimia:128 | lowercase | - | base auc .680, base tpr_at_5fpr .130
GPT-3 | bookmia | zlib | - | base auc .537, base tpr_at_5fpr .192
Baichuan-13B | patentmia | zlib | - | base auc .634, base tpr_at_5fpr .159
Qwen/Qwen1.5-14B | patentmia | zlib | - | base auc .618, base tpr_at_5fpr .129
facebook/opt-6.7b | wikimia:128 | zlib | - | base auc .644, base tpr_at_5fpr .180
EleutherAI/pythia-6.9b | wikimia:128 | zlib | - | base auc .676, base tpr_at_5fpr .209
huggyllama/llama-13b | wikimia:128 | zlib | - | base auc .697, base tpr_at_5fpr .187
EleutherAI/gpt-neox-20b | wikimia:128 | zlib | - | base auc .723, base tpr_at_5fpr .223
Baichuan-13B | patentmia | reference | - | base auc .657, base tpr_at_5fpr .211
Qwen/Qwen1.5-14B | patentmia | reference | - | base auc .565, base tpr_at_5fpr .078
facebook/opt-6.7b | wikimia:128 | reference | - | base auc .654, base tpr_at_5fpr .122
EleutherAI/pythia-6.9b | wikimia:128 | reference | - | base auc .660, base tpr_at_5fpr .158
huggyllama/llama-13b | wikimia:128 | reference | - | base auc .658, base tpr_at_5fpr .151
EleutherAI/gpt-neox-20b | wikimia:128 | reference | - | base auc .714, base tpr_at_5fpr .187
GPT-3 | bookmia | min_k | - | base auc .639, base tpr_at_5fpr .203
Baichuan-13B | patentmia | min_k | - | base auc .643, base tpr_at_5fpr .170
Qwen/Qwen1.5-14B | patentmia | min_k | - | base auc .637, base tpr_at_5fpr .163
facebook/opt-6.7b | wikimia:128 | min_k | - | base auc .674, base tpr_at_5fpr .166
EleutherAI/pythia-6.9b | wikimia:128 | min_k | - | base auc .695, base tpr_at_5fpr .180
huggyllama/llama-13b | wikimia:128 | min_k | - | base auc .715, base tpr_at_5fpr .201
EleutherAI/gpt-neox-20b | wikimia:128 | min_k | - | base auc .756, base tpr_at_5fpr .216
Baichuan-13B | patentmia | min_k_pp | - | base auc .625, base tpr_at_5fpr .130
Qwen/Qwen1.5-14B | patentmia | min_k_pp | - | base auc .630, base tpr_at_5fpr .141
facebook/opt-6.7b | wikimia:128 | min_k_pp | - | base auc .692, base tpr_at_5fpr .215
EleutherAI/pythia-6.9b | wikimia:128 | min_k_pp | - | base auc .697, base tpr_at_5fpr .201
huggyllama/llama-13b | wikimia:128 | min_k_pp | - | base auc .838, base tpr_at_5fpr .381
EleutherAI/gpt-neox-20b | wikimia:128 | min_k_pp | - | base auc .754, base tpr_at_5fpr .245
GPT-3 | bookmia | dc_pdd | a = 10 | base auc .725, base tpr_at_5fpr .336
Baichuan-13B | patentmia | dc_pdd | - | base auc .699, base tpr_at_5fpr .264
Qwen/Qwen1.5-14B | patentmia | dc_pdd | - | base auc .689, base tpr_at_5fpr .271
facebook/opt-6.7b | wikimia:128 | dc_pdd | - | base auc .677, base tpr_at_5fpr .180
EleutherAI/pythia-6.9b | wikimia:128 | dc_pdd | - | base auc .698, base tpr_at_5fpr .245
huggyllama/llama-13b | wikimia:128 | dc_pdd | - | base auc .697, base tpr_at_5fpr .230
EleutherAI/gpt-neox-20b | wikimia:128 | dc_pdd | - | base auc .766, base tpr_at_5fpr .317
"""
"""Printed in DC-PDD (arXiv 2409.14781), Table 2 and Table 3; see `spec.numbers`."""

STUDY = Study(
    place="DC-PDD, Tables 2 and 3",
    title="Does DC-PDD detect members better than other detectors?",
    axes=(
        data_axis("wikimia:128"),
        model_axis("facebook/opt-6.7b", "EleutherAI/pythia-6.9b", "huggyllama/llama-13b", "EleutherAI/gpt-neox-20b"),
    ),
    detectors=(
        *with_defaults("perplexity", "lowercase", "zlib", "reference", "min_k", "min_k_pp", "dc_pdd"),
        DetectorSpec("dc_pdd", {"cap": 10.0}, "a = 10"),
    ),
    rows=("data", "detector"),
    columns=("model", "metric"),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    against="dc_pdd",
    needs="--frequencies for dc_pdd (pipelines.frequencies) and --reference-model for reference, one for each model; "
    "--data patentmia:FILE --model Qwen/Qwen1.5-14B, and --data bookmia, for the paper's other texts",
    aliases=("dcpdd-t3",),
    note="The cap a of dc_pdd is .01; the paper uses a = 10 on BookMIA. Two of its models are left out: GPT-3 is no "
    "longer served, and Baichuan-13B needs code from its repository. At the small scale the second model is the "
    "target's twin, pretrained without members: its AUC should be .5.",
    paper=numbers(PAPER),
)
