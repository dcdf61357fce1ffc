"""What every command shares: the command line, the job and its plan, what is delivered at the end.

No module here is an entry point.
"""
