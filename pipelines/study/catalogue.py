"""The list of studies: what each needs, and whether it can run here."""

from fsd.net.hub import EMBEDDED, hub_reachable
from pipelines.study.grid import Request, plan
from pipelines.study.spec import DATA, MODEL, TWINS, Study, names, read


def catalogue() -> str:
    """A paragraph a study: name, question, needs, and which of its forms can run now."""
    online = hub_reachable()
    models = ", ".join(twin for twin in TWINS if not EMBEDDED[twin].is_dir())
    lines = []
    for name in names():
        study = read(name)
        cells = len(plan(name, study, Request()))
        small = f"missing: {models}" if models else "can run here"
        also = f" (also {', '.join(study.also)})" if study.also else ""
        lines += [
            f"{name}{also}: {study.place}. {study.title}",
            f"    small: {small}; {cells} {'cell' if cells == 1 else 'cells'}, embedded model and corpus",
            f"    full:  {'can run here' if online else 'needs the hub, which cannot be reached'}; {_needs(study)}",
        ]
    return "\n".join(lines)


def _needs(study: Study) -> str:
    axes = {axis.name: axis for axis in study.axes}
    levels = [change for axis in study.axes for change in axis.levels.values()]
    models = list(axes[MODEL].levels) if MODEL in axes else ["--model ID"]
    given = [*study.settings.get("data.data", ()), *(n for change in levels for n in change.get("data.data", ()))]
    data = list(axes[DATA].levels) if DATA in axes else list(dict.fromkeys(given))
    texts = f"data {_few(data)} (or --data FILE)" if data else "--data FILE"
    wanted = [f"models {', '.join(models)}", texts]
    return "; ".join([*wanted, study.needs] if study.needs else wanted)


def _few(entries: list[str]) -> str:
    return ", ".join(entries if len(entries) <= 4 else [*entries[:3], f"… {len(entries)} in all"])
