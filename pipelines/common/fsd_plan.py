"""The dry run of the main job, on which that of tuning rests."""

from fsd.config import FSDConfig
from fsd.data import benchmarks
from fsd.data.splitting import Split
from fsd.net.hub import EMBEDDED
from pipelines.common import datasets, detection, dry_run
from pipelines.common.dry_run import Plan


def plan(config: FSDConfig) -> Plan:
    """What the main job would do; published benchmarks and adapters are named, but not fetched.

    Raises:
        UsageError: for files that cannot be read, or settings that cannot be.
    """
    config = datasets.with_embedded_model(config)
    detectors = detection.load_detectors(config.detection)
    model = config.model
    trained = None if config.adapter else config.training
    reads = {"adapter": config.adapter} if config.adapter else {}
    writes = dry_run.tracked(f"fsd-{config.data.domain}", "a registered adapter")
    notes = [] if config.placebo == "none" else [f"the placebo ({config.placebo}) is not part of the numbers"]
    published = [name for name in config.data.data if benchmarks.is_name(name)]
    if published or not (config.data.data or model.model in EMBEDDED):
        names = published or [f"the published benchmark of {config.data.domain}"]
        reads = {"texts": f"{', '.join(names)}: downloaded, if it is not in the cache", **reads}
        return Plan(reads, model, texts=None, training=trained, writes=writes, notes=notes)
    split = _split(config)
    texts = [document.text for document in (*split.validation, *split.test)]
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in split._asdict().items())
    named = dry_run.files(config.data.data or ["the embedded corpus"], sum(map(len, split)))
    return Plan(
        {"texts": f"{named}: {sizes}", **reads},
        model,
        texts=texts,
        passes=dry_run.passes(detectors, texts, model, unseen=bool(split.unseen)),
        trained=[document.text for document in split.unseen],
        training=trained,
        writes=writes,
        notes=notes,
    )


def _split(config: FSDConfig) -> Split:
    labelled = datasets.load_texts(config.data, config.model)
    return datasets.split_texts(labelled.documents, config.data, config.seed)[0]
