"""Language models: loading, adapters, fine-tuning and pretraining from scratch.

`language_model.load` returns a `LanguageModel`, whose adapter can be switched on and off.
"""
