"""Was this text in the fine-tuning data? The fine-tuned model against its base.

`__main__` is the command, `config` its settings, `texts` reads and splits the texts, `audit` scores and judges them,
`report` presents the result, `registration` keeps the calibrated adapter for further texts, `demo` shows it all on the
embedded model.
"""
