"""The laboratory, `fsd study lab`: targets whose every training text is known, and what each score sees in them.

corpora: the texts, by age; targets: a cell, whose target is trained and its texts scored; results: contrasts of all
cells, with intervals over seeds and texts; report: tables and figure; command: plans, runs and records the cells.
"""
