"""FSD paper (arXiv 2410.10880), Table 14: subsets of the Pile, members and non-members from the same period."""

from fsd.data.benchmarks import pile
from pipelines.study.spec import SMALL_FIELDS, Study, data_axis, numbers, with_defaults

PAPER = """
EleutherAI/pythia-6.9b | pile:wikipedia | perplexity | - | base auc .471, fsd auc .614
EleutherAI/pythia-6.9b | pile:bookcorpus2 | perplexity | - | base auc .528, fsd auc .885
EleutherAI/pythia-6.9b | pile:gutenberg | perplexity | - | base auc .528, fsd auc .661
EleutherAI/pythia-6.9b | pile:hackernews | perplexity | - | base auc .471, fsd auc .565
EleutherAI/pythia-6.9b | pile:enron | perplexity | - | base auc .510, fsd auc .678
EleutherAI/pythia-6.9b | pile:wikipedia | lowercase | - | base auc .466, fsd auc .626
EleutherAI/pythia-6.9b | pile:bookcorpus2 | lowercase | - | base auc .518, fsd auc .725
EleutherAI/pythia-6.9b | pile:gutenberg | lowercase | - | base auc .546, fsd auc .551
EleutherAI/pythia-6.9b | pile:hackernews | lowercase | - | base auc .450, fsd auc .512
EleutherAI/pythia-6.9b | pile:enron | lowercase | - | base auc .484, fsd auc .659
EleutherAI/pythia-6.9b | pile:wikipedia | zlib | - | base auc .496, fsd auc .619
EleutherAI/pythia-6.9b | pile:bookcorpus2 | zlib | - | base auc .477, fsd auc .907
EleutherAI/pythia-6.9b | pile:gutenberg | zlib | - | base auc .496, fsd auc .686
EleutherAI/pythia-6.9b | pile:hackernews | zlib | - | base auc .474, fsd auc .550
EleutherAI/pythia-6.9b | pile:enron | zlib | - | base auc .560, fsd auc .667
EleutherAI/pythia-6.9b | pile:wikipedia | min_k | - | base auc .512, fsd auc .611
EleutherAI/pythia-6.9b | pile:bookcorpus2 | min_k | - | base auc .510, fsd auc .841
EleutherAI/pythia-6.9b | pile:gutenberg | min_k | - | base auc .536, fsd auc .612
EleutherAI/pythia-6.9b | pile:hackernews | min_k | - | base auc .498, fsd auc .535
EleutherAI/pythia-6.9b | pile:enron | min_k | - | base auc .570, fsd auc .646
EleutherAI/pythia-6.9b | pile:cc | perplexity | - | base auc .541, fsd auc .546
EleutherAI/pythia-6.9b | pile:arxiv | perplexity | - | base auc .514, fsd auc .505
EleutherAI/pythia-6.9b | pile:europarl | perplexity | - | base auc .514, fsd auc .601
EleutherAI/pythia-6.9b | pile:freelaw | perplexity | - | base auc .478, fsd auc .515
EleutherAI/pythia-6.9b | pile:github | perplexity | - | base auc .509, fsd auc .548
EleutherAI/pythia-6.9b | pile:cc | lowercase | - | base auc .502, fsd auc .547
EleutherAI/pythia-6.9b | pile:arxiv | lowercase | - | base auc .523, fsd auc .530
EleutherAI/pythia-6.9b | pile:europarl | lowercase | - | base auc .521, fsd auc .556
EleutherAI/pythia-6.9b | pile:freelaw | lowercase | - | base auc .476, fsd auc .507
EleutherAI/pythia-6.9b | pile:github | lowercase | - | base auc .491, fsd auc .513
EleutherAI/pythia-6.9b | pile:cc | zlib | - | base auc .529, fsd auc .576
EleutherAI/pythia-6.9b | pile:arxiv | zlib | - | base auc .540, fsd auc .505
EleutherAI/pythia-6.9b | pile:europarl | zlib | - | base auc .462, fsd auc .609
EleutherAI/pythia-6.9b | pile:freelaw | zlib | - | base auc .492, fsd auc .503
EleutherAI/pythia-6.9b | pile:github | zlib | - | base auc .491, fsd auc .562
EleutherAI/pythia-6.9b | pile:cc | min_k | - | base auc .557, fsd auc .542
EleutherAI/pythia-6.9b | pile:arxiv | min_k | - | base auc .515, fsd auc .502
EleutherAI/pythia-6.9b | pile:europarl | min_k | - | base auc .512, fsd auc .583
EleutherAI/pythia-6.9b | pile:freelaw | min_k | - | base auc .492, fsd auc .500
EleutherAI/pythia-6.9b | pile:github | min_k | - | base auc .513, fsd auc .551
EleutherAI/pythia-6.9b | pile:books3 | perplexity | - | base auc .560, fsd auc .509
EleutherAI/pythia-6.9b | pile:nih | perplexity | - | base auc .463, fsd auc .599
EleutherAI/pythia-6.9b | pile:openwebtext2 | perplexity | - | base auc .490, fsd auc .580
EleutherAI/pythia-6.9b | pile:philpapers | perplexity | - | base auc .571, fsd auc .869
EleutherAI/pythia-6.9b | pile:opensubtitles | perplexity | - | base auc .525, fsd auc .521
EleutherAI/pythia-6.9b | pile:books3 | lowercase | - | base auc .550, fsd auc .524
EleutherAI/pythia-6.9b | pile:nih | lowercase | - | base auc .608, fsd auc .512
EleutherAI/pythia-6.9b | pile:openwebtext2 | lowercase | - | base auc .486, fsd auc .547
EleutherAI/pythia-6.9b | pile:philpapers | lowercase | - | base auc .633, fsd auc .718
EleutherAI/pythia-6.9b | pile:opensubtitles | lowercase | - | base auc .538, fsd auc .528
EleutherAI/pythia-6.9b | pile:books3 | zlib | - | base auc .550, fsd auc .581
EleutherAI/pythia-6.9b | pile:nih | zlib | - | base auc .416, fsd auc .599
EleutherAI/pythia-6.9b | pile:openwebtext2 | zlib | - | base auc .475, fsd auc .586
EleutherAI/pythia-6.9b | pile:philpapers | zlib | - | base auc .678, fsd auc .871
EleutherAI/pythia-6.9b | pile:opensubtitles | zlib | - | base auc .550, fsd auc .530
EleutherAI/pythia-6.9b | pile:books3 | min_k | - | base auc .552, fsd auc .554
EleutherAI/pythia-6.9b | pile:nih | min_k | - | base auc .463, fsd auc .560
EleutherAI/pythia-6.9b | pile:openwebtext2 | min_k | - | base auc .510, fsd auc .567
EleutherAI/pythia-6.9b | pile:philpapers | min_k | - | base auc .606, fsd auc .826
EleutherAI/pythia-6.9b | pile:opensubtitles | min_k | - | base auc .525, fsd auc .535
EleutherAI/pythia-6.9b | pile:stackexchange | perplexity | - | base auc .640, fsd auc .678
EleutherAI/pythia-6.9b | pile:math | perplexity | - | base auc .530, fsd auc .504
EleutherAI/pythia-6.9b | pile:youtubesubtitles | perplexity | - | base auc .392, fsd auc .756
EleutherAI/pythia-6.9b | pile:uspto | perplexity | - | base auc .537, fsd auc .606
EleutherAI/pythia-6.9b | pile:ubuntu | perplexity | - | base auc .282, fsd auc .767
EleutherAI/pythia-6.9b | pile:stackexchange | lowercase | - | base auc .579, fsd auc .641
EleutherAI/pythia-6.9b | pile:math | lowercase | - | base auc .508, fsd auc .513
EleutherAI/pythia-6.9b | pile:youtubesubtitles | lowercase | - | base auc .495, fsd auc .546
EleutherAI/pythia-6.9b | pile:uspto | lowercase | - | base auc .510, fsd auc .582
EleutherAI/pythia-6.9b | pile:ubuntu | lowercase | - | base auc .496, fsd auc .476
EleutherAI/pythia-6.9b | pile:stackexchange | zlib | - | base auc .595, fsd auc .686
EleutherAI/pythia-6.9b | pile:math | zlib | - | base auc .513, fsd auc .502
EleutherAI/pythia-6.9b | pile:youtubesubtitles | zlib | - | base auc .445, fsd auc .736
EleutherAI/pythia-6.9b | pile:uspto | zlib | - | base auc .484, fsd auc .604
EleutherAI/pythia-6.9b | pile:ubuntu | zlib | - | base auc .423, fsd auc .592
EleutherAI/pythia-6.9b | pile:stackexchange | min_k | - | base auc .637, fsd auc .670
EleutherAI/pythia-6.9b | pile:math | min_k | - | base auc .524, fsd auc .510
EleutherAI/pythia-6.9b | pile:youtubesubtitles | min_k | - | base auc .380, fsd auc .692
EleutherAI/pythia-6.9b | pile:uspto | min_k | - | base auc .549, fsd auc .596
EleutherAI/pythia-6.9b | pile:ubuntu | min_k | - | base auc .329, fsd auc .561
"""
"""Printed in FSD (arXiv 2410.10880), Table 14; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Table 14",
    title="Does FSD help where members and non-members are from the same period?",
    axes=(data_axis(*(f"pile:{part}" for part in pile.PARTS), small=SMALL_FIELDS),),
    model="EleutherAI/pythia-6.9b",
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("data",),
    columns=("detector", "state"),
    note="NIH ExPorter, the twentieth subset of the paper, is not in the benchmark. At the small scale the subsets are "
    "fields of the embedded corpus, of about 80 to 130 texts each.",
    paper=numbers(PAPER),
)
