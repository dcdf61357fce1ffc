"""The control model of a run: one that was trained on none of the texts."""

from collections.abc import Sequence
from itertools import chain

from fsd.config import FSDConfig
from fsd.data import benchmarks, embedded
from fsd.data.documents import Document
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN
from fsd.views import Detector
from pipelines.experiment.detector_settings import cheap

EMBEDDED_TARGET = "embedded"
"""The default model: the embedded one of the domain."""


def control_model(config: FSDConfig, documents: Sequence[Document]) -> str | None:
    """The control model, trained on none of the documents; None for no control.

    An embedded target was trained on its corpus and nothing else that anyone has, and the twin on none of it. So `auto`
    is the twin if any document is in such a corpus, and the target `embedded` otherwise. A benchmark may name the twin
    of a target. A model that is known to have seen none of the documents needs no control: the run is one itself.
    """
    if config.placebo == "none":
        return None
    if config.placebo != "auto":
        return config.placebo
    if never_saw(config, documents):
        return None
    twin = benchmarks.control_of(config.data.data, config.model.model)
    if twin:
        return twin
    # The embedded target saw the texts of its corpus.
    if _domains_of(documents):
        return EMBEDDED_TWIN
    return EMBEDDED_TARGET


def control_reference(config: FSDConfig, control: str, documents: Sequence[Document]) -> str | None:
    """The reference model of a control: that of the run, or of the embedded twin the target of another domain."""
    reference = config.model.reference_model
    # A model that is its own reference would give every text the same score.
    if reference == control:
        return None
    if reference:
        return reference
    if control != EMBEDDED_TWIN:
        return None
    trained_on = _domains_of(documents)
    for domain, corpus in embedded.CORPORA.items():
        if domain not in trained_on:
            return corpus.model
    return None


def uncontrolled(config: FSDConfig, documents: Sequence[Document], detectors: Sequence[Detector]) -> str:
    """Which of these detectors of the model its control cannot compute, and why; "" for none, or without a control."""
    control = control_model(config, documents)
    if control is None:
        return ""
    computed = {detector.name for detector in cheap(detectors)}
    alone = control_reference(config, control, documents) is None
    lacking = [
        detector.name for detector in detectors if detector.name not in computed or (alone and detector.reads_reference)
    ]
    if not lacking:
        return ""
    if control == config.model.reference_model:
        return f"the control model {control} is itself the reference model, and has no {', '.join(lacking)}"
    return f"the control model {control} cannot compute {', '.join(lacking)}"


def never_saw(config: FSDConfig, documents: Sequence[Document]) -> bool:
    """Whether the model is an embedded one that was trained on none of the documents."""
    name = config.model.model
    if name == EMBEDDED_TWIN:
        return True
    if name not in EMBEDDED:
        return False
    # The target of arxiv was the only one at first, so its name has no domain.
    trained_on = {domain for domain in embedded.CORPORA if name.startswith(f"{EMBEDDED_TARGET}-{domain}")} or {"arxiv"}
    return not trained_on & _domains_of(documents)


def _domains_of(documents: Sequence[Document]) -> frozenset[str]:
    """The domains of the embedded corpora with which a document or its context shares a run of words."""
    return embedded.domains_of(tuple(chain.from_iterable((document.text, document.context) for document in documents)))
