"""Results as one long frame, and the sentences that are said of them."""
