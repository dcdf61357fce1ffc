"""Language models: loading, adapters, fine-tuning, pretraining from scratch and quantization.

`language_model.load` returns a `LanguageModel`, whose adapter can be switched on and off.
"""
