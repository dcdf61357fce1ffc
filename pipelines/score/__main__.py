"""Base scores of texts, without fine-tuning, by a local model or through a completions API.

`--detectors perplexity` is minus the per-document perplexity. Texts with a column `context`, such as answers after
their prompts, are scored given that context, which is not scored itself: the perplexity of the answer alone.

`fsd score --model api:NAME --base-url http://localhost:8000/v1 --data FILE --out scores.parquet`. An
API returns log-probabilities of the text's own tokens only; detectors that need more are left out, with a remark.
Without `api:`, --model is a local model or a hub id. AUCs are computed if there are labels.

Examples:
    fsd score --data corpus.jsonl --model ./my-model --out scores.parquet
    fsd score --data corpus.jsonl --model ./my-model --out scores.csv --detectors loss,min_k --json
    fsd score --data answers.csv --columns text=answer,context=prompt --model ./my-model --out scores.csv
"""

from fsd.config import ScoreConfig
from pipelines.command.cli import command, deferred
from pipelines.command.context import USUAL

if __name__ == "__main__":
    # It draws no figures and writes no page.
    command(ScoreConfig, deferred("pipelines.score.job"), __doc__, stages={**USUAL, "recording": "recording"})
