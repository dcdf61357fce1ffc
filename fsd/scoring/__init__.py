"""From texts to scores: token statistics by one forward pass, cached on disk, and the detectors' scores from them.

`model_scorer` reads with a model, `api` through a completions API, `token_frequencies` from a table of counts;
`deviation` applies the detectors before and after fine-tuning.
"""
