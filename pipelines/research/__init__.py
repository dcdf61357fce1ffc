"""Commands for research and its preparation: studies, comparisons, small models and token frequencies."""
