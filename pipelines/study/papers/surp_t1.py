"""SURP paper (arXiv 2407.21248), Table 1: the four lengths of WikiMIA."""

from pipelines.study.spec import Axis, Study, model_axis, numbers, surp_table

LENGTHS = (32, 64, 128, 256)
SMALL = (16, 32, 64)
MODELS = (
    "huggyllama/llama-7b",
    "huggyllama/llama-13b",
    "EleutherAI/pythia-2.8b",
    "EleutherAI/pythia-6.9b",
    "EleutherAI/pythia-12b",
    "EleutherAI/gpt-neo-2.7B",
)

PAPER = """
huggyllama/llama-7b | wikimia:32 | loss | - | base auc .661
huggyllama/llama-7b | wikimia:128 | loss | - | base auc .666
huggyllama/llama-13b | wikimia:32 | loss | - | base auc .675
huggyllama/llama-13b | wikimia:128 | loss | - | base auc .678
EleutherAI/pythia-2.8b | wikimia:32 | loss | - | base auc .614
EleutherAI/pythia-2.8b | wikimia:128 | loss | - | base auc .628
EleutherAI/pythia-6.9b | wikimia:32 | loss | - | base auc .638
EleutherAI/pythia-6.9b | wikimia:128 | loss | - | base auc .651
EleutherAI/pythia-12b | wikimia:32 | loss | - | base auc .654
EleutherAI/pythia-12b | wikimia:128 | loss | - | base auc .658
EleutherAI/gpt-neo-2.7B | wikimia:32 | loss | - | base auc .620
EleutherAI/gpt-neo-2.7B | wikimia:128 | loss | - | base auc .640
huggyllama/llama-7b | wikimia:32 | reference | - | base auc .595
huggyllama/llama-7b | wikimia:128 | reference | - | base auc .581
huggyllama/llama-13b | wikimia:32 | reference | - | base auc .608
huggyllama/llama-13b | wikimia:128 | reference | - | base auc .594
EleutherAI/pythia-2.8b | wikimia:32 | reference | - | base auc .613
EleutherAI/pythia-2.8b | wikimia:128 | reference | - | base auc .596
EleutherAI/pythia-6.9b | wikimia:32 | reference | - | base auc .636
EleutherAI/pythia-6.9b | wikimia:128 | reference | - | base auc .633
EleutherAI/pythia-12b | wikimia:32 | reference | - | base auc .651
EleutherAI/pythia-12b | wikimia:128 | reference | - | base auc .639
EleutherAI/gpt-neo-2.7B | wikimia:32 | reference | - | base auc .605
EleutherAI/gpt-neo-2.7B | wikimia:128 | reference | - | base auc .594
huggyllama/llama-7b | wikimia:32 | lowercase | - | base auc .604
huggyllama/llama-7b | wikimia:128 | lowercase | - | base auc .591
huggyllama/llama-13b | wikimia:32 | lowercase | - | base auc .640
huggyllama/llama-13b | wikimia:128 | lowercase | - | base auc .606
EleutherAI/pythia-2.8b | wikimia:32 | lowercase | - | base auc .609
EleutherAI/pythia-2.8b | wikimia:128 | lowercase | - | base auc .595
EleutherAI/pythia-6.9b | wikimia:32 | lowercase | - | base auc .622
EleutherAI/pythia-6.9b | wikimia:128 | lowercase | - | base auc .605
EleutherAI/pythia-12b | wikimia:32 | lowercase | - | base auc .647
EleutherAI/pythia-12b | wikimia:128 | lowercase | - | base auc .614
EleutherAI/gpt-neo-2.7B | wikimia:32 | lowercase | - | base auc .611
EleutherAI/gpt-neo-2.7B | wikimia:128 | lowercase | - | base auc .614
huggyllama/llama-7b | wikimia:32 | zlib | - | base auc .667
huggyllama/llama-7b | wikimia:128 | zlib | - | base auc .683
huggyllama/llama-13b | wikimia:32 | zlib | - | base auc .678
huggyllama/llama-13b | wikimia:128 | zlib | - | base auc .697
EleutherAI/pythia-2.8b | wikimia:32 | zlib | - | base auc .622
EleutherAI/pythia-2.8b | wikimia:128 | zlib | - | base auc .650
EleutherAI/pythia-6.9b | wikimia:32 | zlib | - | base auc .643
EleutherAI/pythia-6.9b | wikimia:128 | zlib | - | base auc .676
EleutherAI/pythia-12b | wikimia:32 | zlib | - | base auc .658
EleutherAI/pythia-12b | wikimia:128 | zlib | - | base auc .678
EleutherAI/gpt-neo-2.7B | wikimia:32 | zlib | - | base auc .625
EleutherAI/gpt-neo-2.7B | wikimia:128 | zlib | - | base auc .662
huggyllama/llama-7b | wikimia:32 | neighbour | - | base auc .629
huggyllama/llama-7b | wikimia:128 | neighbour | - | base auc .616
huggyllama/llama-13b | wikimia:32 | neighbour | - | base auc .642
huggyllama/llama-13b | wikimia:128 | neighbour | - | base auc .652
EleutherAI/pythia-2.8b | wikimia:32 | neighbour | - | base auc .599
EleutherAI/pythia-2.8b | wikimia:128 | neighbour | - | base auc .619
EleutherAI/pythia-6.9b | wikimia:32 | neighbour | - | base auc .625
EleutherAI/pythia-6.9b | wikimia:128 | neighbour | - | base auc .634
EleutherAI/pythia-12b | wikimia:32 | neighbour | - | base auc .630
EleutherAI/pythia-12b | wikimia:128 | neighbour | - | base auc .634
EleutherAI/gpt-neo-2.7B | wikimia:32 | neighbour | - | base auc .605
EleutherAI/gpt-neo-2.7B | wikimia:128 | neighbour | - | base auc .629
huggyllama/llama-7b | wikimia:32 | min_k | best of grid | base auc .651
huggyllama/llama-7b | wikimia:128 | min_k | best of grid | base auc .697
huggyllama/llama-13b | wikimia:32 | min_k | best of grid | base auc .668
huggyllama/llama-13b | wikimia:128 | min_k | best of grid | base auc .715
EleutherAI/pythia-2.8b | wikimia:32 | min_k | best of grid | base auc .617
EleutherAI/pythia-2.8b | wikimia:128 | min_k | best of grid | base auc .668
EleutherAI/pythia-6.9b | wikimia:32 | min_k | best of grid | base auc .663
EleutherAI/pythia-6.9b | wikimia:128 | min_k | best of grid | base auc .695
EleutherAI/pythia-12b | wikimia:32 | min_k | best of grid | base auc .681
EleutherAI/pythia-12b | wikimia:128 | min_k | best of grid | base auc .707
EleutherAI/gpt-neo-2.7B | wikimia:32 | min_k | best of grid | base auc .639
EleutherAI/gpt-neo-2.7B | wikimia:128 | min_k | best of grid | base auc .683
huggyllama/llama-7b | wikimia:32 | surp | best of grid | base auc .864
huggyllama/llama-7b | wikimia:128 | surp | best of grid | base auc .832
huggyllama/llama-13b | wikimia:32 | surp | best of grid | base auc .868
huggyllama/llama-13b | wikimia:128 | surp | best of grid | base auc .830
EleutherAI/pythia-2.8b | wikimia:32 | surp | best of grid | base auc .633
EleutherAI/pythia-2.8b | wikimia:128 | surp | best of grid | base auc .671
EleutherAI/pythia-6.9b | wikimia:32 | surp | best of grid | base auc .681
EleutherAI/pythia-6.9b | wikimia:128 | surp | best of grid | base auc .698
EleutherAI/pythia-12b | wikimia:32 | surp | best of grid | base auc .698
EleutherAI/pythia-12b | wikimia:128 | surp | best of grid | base auc .710
EleutherAI/gpt-neo-2.7B | wikimia:32 | surp | best of grid | base auc .662
EleutherAI/gpt-neo-2.7B | wikimia:128 | surp | best of grid | base auc .694
"""
"""Printed in SURP (arXiv 2407.21248), Table 1; see `spec.numbers`."""

STUDY = Study(
    place="SURP, Table 1 and appendix",
    title="Do surprising tokens reveal members in short and long texts?",
    axes=(
        model_axis(*MODELS),
        Axis(
            "words",
            {str(words): {"data.data": (f"wikimia:{words}",), "texts.words": words} for words in LENGTHS},
            {str(words): {"texts.words": words} for words in SMALL},
        ),
    ),
    detectors=surp_table(),
    rows=("model", "detector"),
    columns=("words",),
    states=("base",),
    needs="--reference-model for reference, one for each model, and --neighbour-model for neighbour",
    note="Texts given by --data are truncated to each length; shorter texts are dropped.",
    paper=numbers(PAPER),
)
