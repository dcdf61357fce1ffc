"""SURP paper (arXiv 2407.21248), Table 3: seven domains of MIMIR."""

from fsd.data.benchmarks import mimir
from pipelines.study.spec import SMALL_FIELDS, Study, data_axis, model_axis, numbers, surp_table

PAPER = """
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | loss | - | base auc .663
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | loss | - | base auc .679
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | loss | - | base auc .690
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | loss | - | base auc .657
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | loss | - | base auc .880
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | loss | - | base auc .889
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | loss | - | base auc .895
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | loss | - | base auc .873
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | loss | - | base auc .549
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | loss | - | base auc .561
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | loss | - | base auc .565
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | loss | - | base auc .553
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | loss | - | base auc .781
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | loss | - | base auc .782
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | loss | - | base auc .781
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | loss | - | base auc .798
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | reference | - | base auc .561
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | reference | - | base auc .582
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | reference | - | base auc .593
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | reference | - | base auc .546
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | reference | - | base auc .418
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | reference | - | base auc .426
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | reference | - | base auc .430
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | reference | - | base auc .416
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | reference | - | base auc .530
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | reference | - | base auc .540
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | reference | - | base auc .545
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | reference | - | base auc .544
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | reference | - | base auc .392
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | reference | - | base auc .396
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | reference | - | base auc .397
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | reference | - | base auc .351
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | lowercase | - | base auc .648
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | lowercase | - | base auc .669
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | lowercase | - | base auc .676
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | lowercase | - | base auc .660
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | lowercase | - | base auc .869
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | lowercase | - | base auc .881
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | lowercase | - | base auc .889
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | lowercase | - | base auc .881
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | lowercase | - | base auc .548
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | lowercase | - | base auc .561
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | lowercase | - | base auc .572
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | lowercase | - | base auc .545
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | lowercase | - | base auc .724
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | lowercase | - | base auc .728
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | lowercase | - | base auc .725
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | lowercase | - | base auc .734
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | zlib | - | base auc .630
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | zlib | - | base auc .649
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | zlib | - | base auc .661
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | zlib | - | base auc .623
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | zlib | - | base auc .907
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | zlib | - | base auc .914
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | zlib | - | base auc .917
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | zlib | - | base auc .899
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | zlib | - | base auc .537
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | zlib | - | base auc .548
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | zlib | - | base auc .551
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | zlib | - | base auc .540
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | zlib | - | base auc .771
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | zlib | - | base auc .773
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | zlib | - | base auc .772
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | zlib | - | base auc .786
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | neighbour | - | base auc .572
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | neighbour | - | base auc .567
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | neighbour | - | base auc .607
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | neighbour | - | base auc .567
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | neighbour | - | base auc .868
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | neighbour | - | base auc .872
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | neighbour | - | base auc .881
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | neighbour | - | base auc .866
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | neighbour | - | base auc .480
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | neighbour | - | base auc .491
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | neighbour | - | base auc .482
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | neighbour | - | base auc .483
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | neighbour | - | base auc .617
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | neighbour | - | base auc .624
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | neighbour | - | base auc .611
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | neighbour | - | base auc .625
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | min_k | best of grid | base auc .657
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | min_k | best of grid | base auc .679
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | min_k | best of grid | base auc .695
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | min_k | best of grid | base auc .649
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | min_k | best of grid | base auc .879
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | min_k | best of grid | base auc .889
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | min_k | best of grid | base auc .895
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | min_k | best of grid | base auc .872
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | min_k | best of grid | base auc .547
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | min_k | best of grid | base auc .562
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | min_k | best of grid | base auc .563
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | min_k | best of grid | base auc .549
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | min_k | best of grid | base auc .781
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | min_k | best of grid | base auc .786
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | min_k | best of grid | base auc .787
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | min_k | best of grid | base auc .796
EleutherAI/pythia-2.8b | mimir:wikipedia_(en)/ngram_7_0.2 | surp | best of grid | base auc .669
EleutherAI/pythia-6.9b | mimir:wikipedia_(en)/ngram_7_0.2 | surp | best of grid | base auc .688
EleutherAI/pythia-12b | mimir:wikipedia_(en)/ngram_7_0.2 | surp | best of grid | base auc .702
EleutherAI/gpt-neo-2.7B | mimir:wikipedia_(en)/ngram_7_0.2 | surp | best of grid | base auc .660
EleutherAI/pythia-2.8b | mimir:github/ngram_7_0.2 | surp | best of grid | base auc .881
EleutherAI/pythia-6.9b | mimir:github/ngram_7_0.2 | surp | best of grid | base auc .890
EleutherAI/pythia-12b | mimir:github/ngram_7_0.2 | surp | best of grid | base auc .896
EleutherAI/gpt-neo-2.7B | mimir:github/ngram_7_0.2 | surp | best of grid | base auc .874
EleutherAI/pythia-2.8b | mimir:pile_cc/ngram_7_0.2 | surp | best of grid | base auc .553
EleutherAI/pythia-6.9b | mimir:pile_cc/ngram_7_0.2 | surp | best of grid | base auc .564
EleutherAI/pythia-12b | mimir:pile_cc/ngram_7_0.2 | surp | best of grid | base auc .571
EleutherAI/gpt-neo-2.7B | mimir:pile_cc/ngram_7_0.2 | surp | best of grid | base auc .556
EleutherAI/pythia-2.8b | mimir:pubmed_central/ngram_7_0.2 | surp | best of grid | base auc .789
EleutherAI/pythia-6.9b | mimir:pubmed_central/ngram_7_0.2 | surp | best of grid | base auc .793
EleutherAI/pythia-12b | mimir:pubmed_central/ngram_7_0.2 | surp | best of grid | base auc .793
EleutherAI/gpt-neo-2.7B | mimir:pubmed_central/ngram_7_0.2 | surp | best of grid | base auc .805
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | loss | - | base auc .780
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | loss | - | base auc .791
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | loss | - | base auc .795
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | loss | - | base auc .790
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | loss | - | base auc .919
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | loss | - | base auc .920
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | loss | - | base auc .919
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | loss | - | base auc .930
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | loss | - | base auc .606
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | loss | - | base auc .613
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | loss | - | base auc .621
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | loss | - | base auc .592
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | reference | - | base auc .565
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | reference | - | base auc .586
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | reference | - | base auc .596
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | reference | - | base auc .548
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | reference | - | base auc .377
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | reference | - | base auc .365
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | reference | - | base auc .363
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | reference | - | base auc .419
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | reference | - | base auc .522
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | reference | - | base auc .532
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | reference | - | base auc .550
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | reference | - | base auc .517
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | lowercase | - | base auc .737
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | lowercase | - | base auc .746
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | lowercase | - | base auc .753
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | lowercase | - | base auc .736
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | lowercase | - | base auc .928
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | lowercase | - | base auc .928
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | lowercase | - | base auc .902
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | lowercase | - | base auc .839
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | lowercase | - | base auc .540
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | lowercase | - | base auc .541
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | lowercase | - | base auc .547
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | lowercase | - | base auc .539
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | zlib | - | base auc .775
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | zlib | - | base auc .784
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | zlib | - | base auc .787
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | zlib | - | base auc .784
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | zlib | - | base auc .811
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | zlib | - | base auc .813
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | zlib | - | base auc .812
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | zlib | - | base auc .812
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | zlib | - | base auc .594
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | zlib | - | base auc .598
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | zlib | - | base auc .604
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | zlib | - | base auc .587
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | neighbour | - | base auc .664
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | neighbour | - | base auc .670
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | neighbour | - | base auc .662
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | neighbour | - | base auc .653
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | neighbour | - | base auc .752
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | neighbour | - | base auc .775
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | neighbour | - | base auc .770
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | neighbour | - | base auc .763
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | neighbour | - | base auc .538
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | neighbour | - | base auc .531
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | neighbour | - | base auc .570
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | neighbour | - | base auc .545
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | min_k | best of grid | base auc .752
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | min_k | best of grid | base auc .767
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | min_k | best of grid | base auc .778
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | min_k | best of grid | base auc .760
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | min_k | best of grid | base auc .926
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | min_k | best of grid | base auc .925
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | min_k | best of grid | base auc .924
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | min_k | best of grid | base auc .933
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | min_k | best of grid | base auc .582
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | min_k | best of grid | base auc .592
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | min_k | best of grid | base auc .605
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | min_k | best of grid | base auc .572
EleutherAI/pythia-2.8b | mimir:arxiv/ngram_7_0.2 | surp | best of grid | base auc .784
EleutherAI/pythia-6.9b | mimir:arxiv/ngram_7_0.2 | surp | best of grid | base auc .793
EleutherAI/pythia-12b | mimir:arxiv/ngram_7_0.2 | surp | best of grid | base auc .798
EleutherAI/gpt-neo-2.7B | mimir:arxiv/ngram_7_0.2 | surp | best of grid | base auc .791
EleutherAI/pythia-2.8b | mimir:dm_mathematics/ngram_7_0.2 | surp | best of grid | base auc .942
EleutherAI/pythia-6.9b | mimir:dm_mathematics/ngram_7_0.2 | surp | best of grid | base auc .942
EleutherAI/pythia-12b | mimir:dm_mathematics/ngram_7_0.2 | surp | best of grid | base auc .936
EleutherAI/gpt-neo-2.7B | mimir:dm_mathematics/ngram_7_0.2 | surp | best of grid | base auc .945
EleutherAI/pythia-2.8b | mimir:hackernews/ngram_7_0.2 | surp | best of grid | base auc .606
EleutherAI/pythia-6.9b | mimir:hackernews/ngram_7_0.2 | surp | best of grid | base auc .614
EleutherAI/pythia-12b | mimir:hackernews/ngram_7_0.2 | surp | best of grid | base auc .624
EleutherAI/gpt-neo-2.7B | mimir:hackernews/ngram_7_0.2 | surp | best of grid | base auc .594
"""
"""Printed in SURP (arXiv 2407.21248), Table 3; see `spec.numbers`."""

STUDY = Study(
    place="SURP, Table 3",
    title="Do surprising tokens reveal members in the domains of the Pile?",
    axes=(
        model_axis(
            "EleutherAI/pythia-2.8b", "EleutherAI/pythia-6.9b", "EleutherAI/pythia-12b", "EleutherAI/gpt-neo-2.7B"
        ),
        data_axis(*(f"mimir:{domain}/ngram_7_0.2" for domain in mimir.DOMAINS), small=SMALL_FIELDS),
    ),
    detectors=surp_table(),
    rows=("model", "detector"),
    columns=("data",),
    states=("base",),
    needs="--reference-model for reference, one for each model, and --neighbour-model for neighbour",
    note="At the small scale the domains are fields of the embedded corpus, of about 80 to 130 texts each.",
    paper=numbers(PAPER),
)
