"""The laboratory: targets whose every training text is known, and what each score sees in them.

`python -m pipelines.study lab` trains small targets that read half of the older texts of a corpus a given number of
times, fine-tunes each on later texts, and compares three kinds of text by every score: members, contemporaries, which
are as old and were never read, and later texts.

    corpora    the texts, by age
    targets    one cell: a target is trained and its texts are scored, in a process of its own
    results    contrasts of all cells, with intervals over seeds; tables and figure
    comparison the combined score and the advice against the best score in hindsight
    command    plans the cells, runs those that no earlier call has finished, and records them
"""
