"""A model behind an OpenAI-style completions API as a scorer: log-probabilities of the text's own tokens, no more."""

from fsd.completions.client import Client, key_for
from fsd.completions.estimate import Estimate, estimate
from fsd.completions.reading import reading, reading_of_ids
from fsd.completions.scorer import CompletionsScorer, KeptCompletions
from fsd.completions.tokens import PromptTokens

__all__ = [
    "Client",
    "CompletionsScorer",
    "Estimate",
    "KeptCompletions",
    "PromptTokens",
    "estimate",
    "key_for",
    "reading",
    "reading_of_ids",
]
