"""Studies: tables and figures of the papers as declarative grids of experiments, run by `python -m pipelines.study`.

`catalogue.yaml` declares them, and `papers.csv` has the numbers that the papers print; `catalogue` reads both. `grid`
expands a declaration into cells, `texts` prepares their texts, `cells` runs them, and `tables` and `figures` lay out
the results as the paper does.
"""
