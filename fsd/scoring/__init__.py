"""Token statistics of texts, and from these the scores of detectors before and after fine-tuning."""
