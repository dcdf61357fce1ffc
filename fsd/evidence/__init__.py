"""Evidence that needs no non-members of the same kind: canaries with exact ranks, and extraction of known text.

A membership score shows that a text differs from others; whether it differs *because it was in the training data* is
only certain where the comparison was drawn at random (arXiv 2409.19798). `canaries` makes such a draw before
publication, and `extraction` measures how probable the text itself is under the model.
"""
