"""Fine-tuned Score Deviation: was this text in that model's pretraining data?

The package holds the nouns and verbs of the papers, one idea a file. The data flow from left to right:
`domains` give `documents`, a split sends the unseen ones to `finetuning` and the rest through `views` and
`scoring` to the detectors, whose score before and after fine-tuning is the `deviation`.
"""
