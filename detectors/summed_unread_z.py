"""`unread_z` against two references: the model as it is, and fine-tuned on texts that were not read."""

from typing import Annotated

from fsd.token_stats import Exemplars, PairStats
from fsd.unread import ALPHA, added_z

NEEDS = ("token",)
# It takes a second training, and a pass more.
AUTO = False


def summed_unread_z(
    difference: PairStats,
    unread: Exemplars,
    adapted_difference: PairStats,
    adapted_unread: Exemplars,
    *,
    alpha: Annotated[float, ALPHA] = 100.0,
) -> float:
    """unread_z against the reference model + unread_z against the same model after fine-tuning on unread texts.

    A log-ratio to a reference holds what the target learned of a text, and of texts of its kind. The fine-tuned
    reference knows the kind as well, and not the text. Z-scores have no unit, so both are added without weights.

    Args:
        difference: statistics under the target model p and the reference model q, (T,), which must have the same
            vocabulary.
        unread: the same of texts that the target was not trained on, of the same source; at least 20.
        adapted_difference: the same tokens under p and the fine-tuned q.
        adapted_unread: the same of unread texts on which q was not fine-tuned either; at least 20.
        alpha: penalty of the ridge, above 0.

    Source: this project, from FSD (arXiv 2410.10880), whose fine-tuning is given to the reference model. docs/lab.md
    measures it.
    """
    return added_z(difference, unread, alpha) + added_z(adapted_difference, adapted_unread, alpha)
