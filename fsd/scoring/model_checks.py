"""What can be told about a model before it is opened: whether its parts exist and its numbers make sense."""

from pathlib import Path

from fsd.config import ModelConfig
from fsd.errors import UsageError, at_least
from fsd.net.hub import check_located, check_other_weights
from fsd.scoring.scorers import cache_folder, reference_name

# Name of the neighbours that need no model.
WORDS = "words"


def check_model(config: ModelConfig) -> None:
    """Refuse what opening and scoring the model would refuse, without a download and without weights in memory.

    A UsageError for a model, reference model or neighbour model that is none, a table of token frequencies that is none
    or of another tokenizer, a reference model with the weights of the model itself, an unknown device or dtype, and
    numbers out of range.
    """
    at_least(
        1, **{"neighbours": config.neighbours, "samples": config.samples, "max-batch-tokens": config.max_batch_tokens}
    )
    cache_folder(config)
    if not config.by_api:
        from fsd.models.devices import check_fits, resolve_precision
        from fsd.models.language_model import quantization_options

        _, dtype = resolve_precision(config)
        quantization_options(config.bits, dtype)
        check_located(config.model, config.revision)
        check_fits(config)
    reference = reference_name(config)
    if reference:
        check_located(reference)
    if config.neighbour_model not in (None, WORDS):
        check_located(config.neighbour_model)
    # One that lies beside the model is read where a detector needs it.
    if config.frequencies:
        from fsd.scoring.token_frequencies import FrequencyTable

        FrequencyTable.load(Path(config.frequencies))
    if reference:
        # Every difference from the same weights would be 0, and the score the same for all texts.
        check_other_weights("reference-model", reference, config.model, config.revision)


def check_chats(config: ModelConfig) -> None:
    """Refuse to score chats by an API."""
    if config.by_api:
        raise UsageError(
            "chats must be scored by a model on this machine, whose template writes them; got "
            f"{config.model}: give the texts as columns context and text"
        )
