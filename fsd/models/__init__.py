"""The language model: loading, adapters, fine-tuning, pretraining."""
