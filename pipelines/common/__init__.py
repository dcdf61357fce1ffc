"""What several pipelines share: the command line, data sets, building scorers, the steps of an experiment.

No module here is an entry point.
"""
