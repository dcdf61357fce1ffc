"""One file per table or figure of the three papers, each a declaration that `pipelines.study` runs."""
