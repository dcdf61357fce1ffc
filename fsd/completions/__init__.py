"""A model behind an OpenAI-style completions API as a scorer: log-probabilities of the text's own tokens, no more."""

from fsd.completions.client import Client, key_for
from fsd.completions.reading import reading
from fsd.completions.scorer import CompletionsScorer, Estimate, KeptCompletions, estimate

__all__ = ["Client", "CompletionsScorer", "Estimate", "KeptCompletions", "estimate", "key_for", "reading"]
