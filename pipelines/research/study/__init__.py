"""Studies: tables and figures of the papers as declarative grids of experiments, run by `fsd study`."""
