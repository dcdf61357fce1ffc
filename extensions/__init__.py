"""What stands on the method: one folder an extension, its library and its command together.

None imports another, and the core imports none: see docs/architecture.md.
"""
