"""A model behind an OpenAI-style completions API as a scorer: log-probabilities of the text's own tokens, no more."""

from fsd.scoring.api.client import Client, key_for
from fsd.scoring.api.cost import Estimate, estimate
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.scoring.api.response import reading, reading_of_ids
from fsd.scoring.api.scorer import CompletionsScorer

__all__ = [
    "Client",
    "CompletionsScorer",
    "Estimate",
    "PromptTokens",
    "estimate",
    "key_for",
    "reading",
    "reading_of_ids",
]
