"""A registered adapter as a model that MLflow serves."""
