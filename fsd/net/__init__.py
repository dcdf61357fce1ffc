"""HTTP with retries, and the model hub: everything that talks to the outside.

Only this package and `fsd.tracking` open connections.
"""
