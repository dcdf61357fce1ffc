"""Studies: tables and figures of the papers as declarative grids of experiments, run by `python -m pipelines.study`.

`spec` holds the declarative types and `papers` one declaration per table or figure; `grid` expands a declaration into
cells, `texts` prepares their texts, `cells` runs and caches them on models from `model_pool`, and `tables` and
`figures` lay out the results as the paper does.
"""
