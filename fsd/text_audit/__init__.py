"""Do the texts alone tell members from non-members? What a classifier that never sees the model finds."""
