"""Evidence that needs no non-members of the same kind: canaries with exact ranks, and extraction of known text.

Whether a text differs *because it was in the training data* is only certain where the comparison was drawn at random
(arXiv 2409.19798).
"""
