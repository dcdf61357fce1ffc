"""From texts to scores: token statistics from one forward pass, cached on disk, and the detectors' scores from them.

`model_scorer` scores with a model, `api` through a completions API, `token_frequencies` with a table of counts; `cache`
stores their results; `deviation` computes the detectors' scores before and after fine-tuning.
"""
