"""Power and false alarms of every kind of evidence, on models whose training data is known."""
