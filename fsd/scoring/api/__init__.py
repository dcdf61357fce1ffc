"""A model behind a completions API as a scorer: log-probabilities of the text's own tokens only."""

from fsd.scoring.api.client import Client, key_for
from fsd.scoring.api.prompt_ids import PromptTokens
from fsd.scoring.api.scorer import CompletionsScorer

__all__ = ["Client", "CompletionsScorer", "PromptTokens", "key_for"]
