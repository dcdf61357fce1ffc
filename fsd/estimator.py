"""Fine-tuned Score Deviation as an estimator after scikit-learn's conventions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.token_stats import FloatArray

if TYPE_CHECKING:
    from fsd.library import Model


class MembershipDetector(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Scores texts by their Fine-tuned Score Deviation: higher means more likely a member of the pretraining data.

    It can be cloned, pickled and put at the end of a pipeline. scikit-learn's checks of arrays of numbers do not apply,
    as its input is texts; nor does cross-validation, as `fit` takes unseen texts alone.

    >>> import fsd
    >>> from fsd.data.embedded import corpus
    >>> texts = [document.text for document in corpus() if not document.member]
    >>> detector = fsd.MembershipDetector("embedded", "min_k").fit(texts[:40])
    >>> detector.score_samples(texts[40:43]).shape
    (3,)

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, or a loaded model.
        detector: name of the detector.
        training: how the adapter is trained, a `fsd.config.AdapterConfig`; None for the paper's way.
        seed: random seed of the adapter and the order of training.

    Attributes:
        model_: the `LanguageModel` with its adapter.
        unseen_: the texts that it was fine-tuned on.
    """

    def __init__(
        self,
        model: "Model" = "embedded",
        detector: str = "loss",
        *,
        training: AdapterConfig | None = None,
        seed: int = 42,
    ) -> None:
        self.model = model
        self.detector = detector
        self.training = training
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X: Sequence[str], y: object = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Fine-tune on texts that the model cannot have seen; `y` is ignored.

        Raises:
            UsageError: for an unknown detector, or if the model cannot be loaded or trained on the texts.
        """
        from fsd.library import chosen, listed, opened
        from fsd.models.finetuning import finetune

        chosen([self.detector])  # an unknown name is refused before the training
        self.unseen_ = listed("unseen", X)
        self.model_ = opened(self.model).language_model
        finetune(
            self.model_,
            self.unseen_,
            self.training or AdapterConfig(),
            seed=self.seed,
        )
        # Fine-tuning puts the network into another one, by which a second training is noticed.
        self._tuned = self.model_.model
        return self

    def score_samples(self, X: Sequence[str]) -> FloatArray:  # noqa: N803
        """(N,) deviations of N texts, none of them among those of `fit`.

        Raises:
            sklearn.exceptions.NotFittedError: before `fit`.
            UsageError: for a text that the model was fine-tuned on, or if the model was fine-tuned again elsewhere.
        """
        from fsd.library import deviation

        check_is_fitted(self, "model_")
        if self.model_.model is not self._tuned:
            raise UsageError(
                "the model must have the adapter of fit; it was fine-tuned again: load one for each estimator"
            )
        table = deviation(self.model_, X, self.unseen_, [self.detector], seed=self.seed)
        return table[f"{self.detector}.fsd"].to_numpy(np.float64)
