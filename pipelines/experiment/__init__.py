"""One experiment: inputs, training, scores before and after, answer and registration."""
