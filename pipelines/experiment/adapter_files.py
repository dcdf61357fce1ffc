"""The files that travel with a registered adapter, so that it can give verdicts later."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

import detectors as available
from fsd import distributed, tracking
from fsd.config import AdapterConfig, ModelConfig
from fsd.data.corpus import Split
from fsd.data.documents import AFTER_CONTEXT, CHAT, COMPLETED, TEXT, Document, json_line
from fsd.data.layouts import COMPLETION, MESSAGES, PROMPT, SETTINGS, TOOLS, columns_of
from fsd.files import SMALL, read_json
from fsd.net.hub import EMBEDDED
from fsd.scoring.scorers import TABLE, frequency_file
from fsd.tracking import InputColumn, ServedRows
from fsd.views import Detector

if TYPE_CHECKING:
    from fsd.evaluation.answer import AuditSummary
    from fsd.verdicts.calibration import Calibration

SETUP = "setup.json"
"""How the adapter's run scored."""
UNSEEN = "unseen.jsonl"
"""The texts that the adapter was trained on."""
CALIBRATION = "calibration.json"
"""The calibration of the best detector."""
AUDIT = "audit.json"
"""The text audit of the run in short."""
TEMPLATE = "chat_template.jinja"
"""The template by which the run wrote chats, where it was given."""
REFERENCE = "reference_adapter"
"""Folder beside the weights: the adapter of the reference model, where one was trained."""
FILES = (CALIBRATION, SETUP, UNSEEN, TABLE, AUDIT, TEMPLATE)
"""All of them; token frequencies and template may be absent, and adapters of earlier releases have no audit."""
OF_TEXTS = ("text", "context")
OF_COMPLETIONS = (PROMPT, COMPLETION)
OF_CHATS = (MESSAGES, *OF_COMPLETIONS, TOOLS, SETTINGS)
COLUMNS = {TEXT: OF_TEXTS[:1], AFTER_CONTEXT: OF_TEXTS, COMPLETED: OF_COMPLETIONS, CHAT: OF_CHATS}
"""The columns of which a row is read."""
SERVING = Path(__file__).parents[2] / "extensions" / "serve" / "mlflow_model.py"
"""The code by which MLflow serves the adapter."""


@dataclass(frozen=True)
class Setup:
    """How a run scored: its model, whether that was in a folder, its detectors and how the adapter was trained.

    `adapting` are hashes of the unseen texts on which its reference model was trained.
    """

    model: ModelConfig
    folder: bool
    domain: Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]
    detectors: Mapping[str, Mapping[str, Any]]
    shots: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    base_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cutoff: str = ""
    training: AdapterConfig | None = None
    adapting: Sequence[str] = ()

    def __post_init__(self) -> None:
        # The file may be of another version, or of somebody else: what is unknown is refused when it is read.
        for name, settings in self.detectors.items():
            available.load(name, **settings).with_base_settings(**self.base_settings.get(name, {}))


def contents(  # noqa: PLR0913 - each is known to the caller alone
    model: ModelConfig,
    shots: int,
    detectors: Sequence[Detector],
    audit: "AuditSummary",
    calibration: "Calibration | None",
    *,
    domain: str,
    seed: int,
    training: AdapterConfig | None = None,
    unseen: Sequence[Document] | None = None,
    cutoff: str = "",
    adapting: Sequence[str] = (),
) -> dict[str, str | Path]:
    """Name → content or path of the files; `training` and `unseen` are None where they are not known."""
    # Table and template travel with the adapter, and the cache is of this machine.
    stored_model = replace(model, frequencies=None, cache=None, chat_template=None)
    in_folder = model.model not in EMBEDDED and Path(model.model).expanduser().is_dir()
    settings = {detector.name: dict(detector.settings) for detector in detectors}
    base_settings = {detector.name: dict(detector.base_settings) for detector in detectors if detector.base_settings}
    setup = Setup(stored_model, in_folder, domain, settings, shots, seed, base_settings, cutoff, training, adapting)
    files: dict[str, str | Path] = {AUDIT: audit.to_json()}
    files[SETUP] = json.dumps(asdict(setup), indent=2) + "\n"
    if calibration:
        files[CALIBRATION] = calibration.to_json()
    if unseen is not None:
        lines = [json_line(document, labelled=False) for document in unseen]
        files[UNSEEN] = b"".join(lines).decode()
    # That of the embedded models as well, which another release may not have.
    table = frequency_file(model)
    if table:
        files[TABLE] = table
    if model.chat_template:
        files[TEMPLATE] = Path(model.chat_template)
    return files


def served_rows(parts: Split, calibration: "Calibration | None") -> ServedRows:
    """The rows that the served model takes, and one of the non-members of the calibration."""
    return ServedRows(served_columns(calibration), _example(parts))


def _example(parts: Split) -> dict[str, Any]:
    """A row that gets a verdict: of the non-members that the calibration compares with, the one of middle length."""
    test = parts.without_later().test
    nonmembers = test.take(~test.members)
    if not nonmembers:
        return {"text": "The text to be judged, as long as those of the benchmark."}
    middle = sorted(nonmembers, key=lambda document: len(document.text))[len(nonmembers) // 2]
    row = {"text": middle.text}
    if middle.context:
        row["context"] = middle.context
    if middle.chat:
        row = columns_of(middle.chat)
    if middle.source:
        row["source"] = middle.source
    return row


def served_columns(calibration: "Calibration | None") -> list[InputColumn]:
    """The columns of a row as those of the calibration were read; of chats some of them, and all of others."""
    # One of an earlier release does not tell.
    read_as = (calibration and calibration.reference.read_as) or (TEXT,)
    names = dict.fromkeys(chain.from_iterable(COLUMNS[kind] for kind in read_as))
    chats = CHAT in read_as
    required = len(read_as) == 1 and not chats
    columns = []
    for name in names:
        strings = not chats or name in OF_TEXTS
        columns.append(InputColumn(name, strings, required))
    # Verdicts are then by source.
    if calibration and any(calibration.test.sources):
        columns.append(InputColumn("source", required=False))
    return columns


def fetched(uri: str | None) -> Path | None:
    """The folder of an adapter, if one is named."""
    if uri is None:
        return None
    return tracking.fetch_adapter(uri)


def read_setup(uri: str, *, collective: bool = True) -> Setup | None:
    """The settings with which the run of an adapter scored; None where there are none."""

    def fetch() -> Path | None:
        return tracking.fetch_model_file(uri, SETUP)

    # One process asks the store for all of them, unless the others have ended already.
    file = distributed.from_main(fetch) if collective else fetch()
    if file is None:
        return None
    return setup_in(file)


def setup_in(file: Path) -> Setup:
    """The settings in a file."""
    return read_json(Setup, file, "the settings of a run", largest=SMALL)


def recorded_training(uri: str, *, collective: bool = True) -> AdapterConfig | None:
    """How a registered adapter was trained, see `read_setup`; None where it is not recorded."""
    setup = read_setup(uri, collective=collective)
    return setup.training if setup else None


def files_of(uri: str) -> dict[str, Path]:
    """The files of an adapter, and those that travel with it, by name."""
    files = {}
    folder = tracking.fetch_adapter(uri)
    # In no other folder: a trainer leaves its checkpoints beside an adapter.
    for place in (folder, folder / REFERENCE):
        for path in sorted(place.glob("*")):
            if path.is_file():
                files[path.relative_to(folder).as_posix()] = path
    # A registered adapter has them beside its folder.
    for name in FILES:
        file = tracking.fetch_model_file(uri, name)
        if file:
            files[name] = file
    return files
