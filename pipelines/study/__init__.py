"""`python -m pipelines.study`: tables and figures of the papers as small declarative grids that resume."""
