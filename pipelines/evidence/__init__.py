"""Commands that answer one question on its own: a book, a benchmark, fine-tuning data, canaries, overlap; bundles."""
