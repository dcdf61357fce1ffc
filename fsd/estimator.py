"""Fine-tuned Score Deviation as an estimator after scikit-learn's conventions."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from fsd.config import AdapterConfig
from fsd.errors import UsageError, one_of
from fsd.token_stats import FloatArray

if TYPE_CHECKING:
    from fsd.library import Model, Texts
    from fsd.token_stats import Prompt


class MembershipDetector(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Scores texts by their Fine-tuned Score Deviation: higher means more likely a member of the pretraining data.

    It can be cloned, pickled, put at the end of a pipeline, and selected by `cross_val_score` and `GridSearchCV`, also
    over settings of the training such as `training__epochs`. These
    fine-tune on the non-members of the training folds alone, and rank the texts of the test fold. Split by `GroupKFold`
    where texts are related, and ask for no training scores: a text of `fit` is never scored. scikit-learn's checks of
    arrays of numbers do not apply, as the input is texts.

    There is no `predict`. No deviation means "member" by itself: a threshold needs non-members of the same kind that
    the model was not fine-tuned on, and `fsd detect` calibrates one on such texts.

    >>> import fsd
    >>> from fsd.data.embedded import corpus
    >>> texts = [document.text for document in corpus() if not document.member]
    >>> detector = fsd.MembershipDetector("embedded", "min_k").fit(texts[:40])
    >>> detector.score_samples(texts[40:43]).shape
    (3,)

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, a loaded model without an adapter, or a pair
            of it and its tokenizer.
        detector: name of the detector.
        training: how the adapter is trained, a `fsd.config.AdapterConfig`; None for the paper's way.
        seed: random seed of the adapter and the order of training.

    Attributes:
        model_: the `LanguageModel` with its adapter.
        unseen_: the texts that it was fine-tuned on.
        classes_: the labels, False for a non-member and True for a member.
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
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        # Only of a classifier does model selection read `decision_function`.
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; of a deep look also those of the training, `training__epochs`, which a search can set."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            # What is none is refused by `fit`, as scikit-learn wants it.
            training = self.training if isinstance(self.training, AdapterConfig) else AdapterConfig()
            for name, value in vars(training).items():
                params[f"training__{name}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set settings by the names of `get_params`."""
        # Its own would ask the training, which is None or a dataclass, for a method of that name.
        nested = {}
        for name in list(params):
            if name.startswith("training__"):
                nested[name] = params.pop(name)
        super().set_params(**params)
        for name, value in nested.items():
            if name not in self.get_params():
                raise UsageError(one_of("setting", self.get_params(), name))
            # A copy: another estimator may have the same.
            self.training = replace(self.training or AdapterConfig(), **{name.removeprefix("training__"): value})
        return self

    def fit(self, X: "Texts", y: "Iterable[object] | None" = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Fine-tune on texts that the model cannot have seen.

        Args:
            X: texts, or a table with a column `text`.
            y: their labels: those with 0 or False are fine-tuned on, the members have no effect. By default the column
                `label` of a table; without labels, none of the texts may be a member.

        Raises:
            UsageError: for an unknown detector, labels without a non-member, a model that has an adapter of its own, or
                one that cannot be loaded or trained on the texts.
        """
        from fsd.library import chosen, opened
        from fsd.models.adapters import adapter_fingerprint
        from fsd.models.finetuning import finetune
        from fsd.scoring.scorers import STATES

        chosen([self.detector])  # an unknown name is refused before the training
        self.unseen_ = _nonmembers(X, y)
        self._check_model()
        to_score = opened(self.model, states=STATES, seed=self.seed)
        self.model_ = to_score.language_model
        # It names what the model is scored with besides, such as a reference model.
        self._config = to_score.config
        finetune(self.model_, self.unseen_, self.training or AdapterConfig(), seed=self.seed)
        # Another training of the same network takes this adapter's place.
        self._adapter = adapter_fingerprint(self.model_)
        self.classes_ = np.array([False, True])
        return self

    def _check_model(self) -> None:
        """Refuse a model of peft, whose adapter the training would take off."""
        from fsd.library import network_of

        if hasattr(network_of(self.model), "get_base_model"):
            raise UsageError(
                "model must have no adapter of its own, since fit trains one: give model.unload(), its base, or "
                "model.merge_and_unload() where the adapter is part of the model"
            )

    def score_samples(self, X: "Texts") -> FloatArray:  # noqa: N803
        """(N,) deviations of N texts, none of them among those of `fit`.

        Raises:
            sklearn.exceptions.NotFittedError: before `fit`.
            UsageError: for a text that the model was fine-tuned on, or if the model was fine-tuned again elsewhere.
        """
        from fsd.library import listed, prepare
        from fsd.models.adapters import adapter_fingerprint
        from fsd.scoring.scorers import STATES

        check_is_fitted(self, "model_")
        if adapter_fingerprint(self.model_) != self._adapter:
            raise UsageError(
                "the model must have the adapter of fit; it was fine-tuned again: load one for each estimator"
            )
        texts = listed("texts", X)
        plan, _ = prepare(
            self.model_, texts, self.unseen_, [self.detector], STATES, config=self._config, seed=self.seed
        )
        table = plan.score().frame()
        return table[f"{self.detector}.fsd"].to_numpy(np.float64)

    def decision_function(self, X: "Texts") -> FloatArray:  # noqa: N803
        """The same as `score_samples`, by the name under which model selection asks a classifier for it."""
        return self.score_samples(X)

    def score(self, X: "Texts", y: "Iterable[object]") -> float:  # noqa: N803
        """The AUC of the deviations, which model selection compares where it is told no other measure."""
        from fsd.library import joined, members_by

        return float(roc_auc_score(members_by(joined("y", y, "X", X)), self.decision_function(X)))


def _nonmembers(texts: "Texts", labels: "Iterable[object] | None") -> "list[str | Prompt]":
    """The texts that are labelled 0; all of them without labels."""
    from fsd.library import LABEL, check_length, columns_of, joined, listed, members_by

    strings = listed("unseen", texts)
    if labels is None:
        if LABEL not in columns_of(texts):
            return strings
        labels = texts
    members = members_by(joined("y", labels, "X", texts))
    check_length("labels", members, "texts", strings)
    nonmembers = []
    for text, member in zip(strings, members, strict=True):
        if not member:
            nonmembers.append(text)
    if not nonmembers:
        raise UsageError(f"labels must have at least one 0 (non-member), to fine-tune on; got {len(members):,} members")
    return nonmembers
