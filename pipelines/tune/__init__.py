"""`fsd tune`: settings of detectors and adapters chosen by Optuna on validation texts."""
