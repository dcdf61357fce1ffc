"""The language model under test: loading, adapters, fine-tuning, pretraining from scratch, quantization.

`language_model` holds the loaded model, whose adapter can be switched on and off.
"""
