"""One file per table or figure of a paper, each of which assigns a `pipelines.study.spec.Study` to `STUDY`."""
