"""Settings of the pipelines: frozen dataclasses, with the help text of `--help` below each field."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from itertools import chain
from typing import Annotated, Any, Literal, cast

from tyro.conf import arg

from fsd.errors import UsageError

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Method = Literal["lora", "ia3", "adalora"]
# Names of the default set of detectors and of all of them.
AUTO = "auto"
ALL = "all"
API = "api:"
"""What the name of a model behind an API begins with."""
NEIGHBOURS = 25
"""Neighbours of a text by a masked language model (Mattern et al. 2023, arXiv 2305.18462, §4)."""
FPR = 0.05
"""False-positive rate of verdicts."""


def _shown(metavar: str) -> Any:
    """How tyro shows an optional flag: its own {None}|STR, and (default: None), say nothing to a user."""
    return arg(metavar=metavar, help_behavior_hint="")


OptionalPath = Annotated[str | None, _shown("PATH")]
Paths = Annotated[tuple[str, ...], arg(metavar="PATH [PATH ...]")]
OptionalPaths = Annotated[tuple[str, ...], _shown("PATH [PATH ...]")]
OptionalModel = Annotated[str | None, _shown("MODEL")]
OptionalURI = Annotated[str | None, _shown("URI|PATH")]
OptionalName = Annotated[str | None, _shown("NAME")]
OptionalURL = Annotated[str | None, _shown("URL")]
OptionalDay = Annotated[str | None, _shown("DAY")]
_COLUMNS = (
    "Column names that differ from the defaults, e.g. text=Example_A,label=Label,group=ID; several columns are joined "
    'by a template, text="{question} {answer}"; label=- reads no label, context=- no context, and so on.'
)
Columns = Annotated[str, arg(metavar="NAME=COLUMN,...", help_behavior_hint="", help=_COLUMNS)]
Domain = Annotated[str, arg(help="Part of the experiment's name, fsd-<domain>.")]
OptionalInt = Annotated[int | None, _shown("INT")]
OptionalFloat = Annotated[float | None, _shown("FLOAT")]


@dataclass(frozen=True)
class CleaningConfig:
    """Texts of files that cannot be used; published benchmarks are always cleaned, and what is left out counted."""

    skip_invalid: bool = False
    """Leave out and count rows of files without a text, or with a label other than 0 and 1; by default an error."""
    near_duplicates: Literal["refuse", "drop"] = "refuse"
    """Members that are copies or near-copies of non-members: an error, or left out on both sides and counted."""


@dataclass(frozen=True)
class DataConfig:
    """Texts and their split."""

    domain: str = "arxiv"
    """Domain of the texts, any name for your own; part of the names of the experiment and of the registered model,
    fsd-<domain>. Without --data it must be arxiv or wikipedia."""
    data: OptionalPaths = ()
    """Files (JSONL, CSV, Parquet), or folders of them, with text (or messages, or prompt and completion), label (1
    member, 0 non-member), group, date, period. A folder of `save_to_disk` is read, too; a published benchmark is
    named, as wikimia:64."""
    members: OptionalPaths = ()
    """Files or folders of members alone, in place of labels in --data; also .txt files, one text each."""
    nonmembers: OptionalPaths = ()
    """Files or folders of non-members alone, beside --members."""
    columns: Columns = ""
    cutoff: OptionalDay = None
    """Last day of the model's data: non-members dated up to it are contemporaries of the members, all others later."""
    split: Literal["grouped", "paper"] = "grouped"
    """`grouped` keeps articles and near-duplicates in one part; `paper` draws rows as the papers do, and may leak."""
    unseen: Annotated[float | str, arg(metavar="FLOAT|PATH")] = 0.3
    """Share of the non-members (of the later ones) to fine-tune on, or a file of texts the model cannot have seen."""
    validation: OptionalFloat = None
    """Share of the benchmark used to choose thresholds. Default: 0.2 with --split grouped, 0 with --split paper."""
    cleaning: CleaningConfig = CleaningConfig()

    @property
    def places(self) -> tuple[str, ...]:
        """All files, folders and benchmarks of labelled texts."""
        return tuple(chain(self.data, self.members, self.nonmembers))


@dataclass(frozen=True)
class ModelConfig:
    """The model under test and how it runs."""

    model: Annotated[str, arg(metavar="MODEL")] = "embedded"
    """`embedded` (of domain arxiv or wikipedia), `smollm2`, a folder, GGUF file or hub id; `fsd score`: api:NAME."""
    revision: OptionalName = None
    """Branch, tag or commit of a hub id."""
    reference_model: OptionalModel = None
    """Smaller model of the same family, for the detector `reference`; `embedded` has its own."""
    neighbour_model: OptionalModel = None
    """Masked language model for the detector `neighbour`, or `words` for word swaps without a model."""
    neighbours: OptionalInt = None
    """Neighbours per text. Default: 25 with a masked language model, as in the paper; 5 with word swaps."""
    samples: OptionalInt = None
    """Continuations per text for samia and cdd. Default: 10 and 50, as in their papers."""
    frequencies: OptionalPath = None
    """Token-frequency table for dc_pdd, made by `fsd frequencies`; `embedded` has its own."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or `spread` for a model larger than one card: over all cards, then main memory."""
    dtype: Dtype = "auto"
    """Precision of training and scoring; auto is bfloat16 on a GPU that has it, else float32."""
    bits: Annotated[Literal[4, 8] | None, _shown("{4,8}")] = None
    """Quantize the weights to 4 or 8 bits, for a model larger than the memory; needs bitsandbytes."""
    max_batch_tokens: OptionalInt = None
    """Maximum number of tokens in a forward pass, padding included. Default: depends on the device."""
    first_token: Literal["scored", "given"] = "scored"
    """`scored` after a start token (BOS, else EOS), or `given`: no start token, as in the code of the papers."""
    chats: Literal["answers", "whole"] = "answers"
    """What is learned and scored of chats: the `answers`, after what is said before them, or the `whole`."""
    chat_template: OptionalPath = None
    """Jinja template by which chats are written. Default: that of the model's tokenizer."""
    cache: OptionalPath = None
    """Folder that caches token statistics, or `none`. Default: $FSD_CACHE, else ~/.cache/fsd."""

    @property
    def by_api(self) -> bool:
        """Whether the model is behind an API, and not on this machine."""
        return self.model.startswith(API)


@dataclass(frozen=True)
class AdapterConfig:
    """Fine-tuning of the adapter; the defaults are those of the FSD paper (arXiv 2410.10880, §4.1)."""

    method: Method = "lora"
    """Adapter method."""
    rank: int = 16
    """Rank r of lora; average final rank of adalora."""
    alpha: int = 32
    """Scaling factor α of lora and adalora."""
    dropout: float = 0.05
    """Dropout of lora and adalora."""
    target_modules: str = "auto"
    """`auto` (chosen by architecture), `all-linear`, or module names separated by commas."""
    learning_rate: float = 1e-3
    """Peak learning rate of the cosine schedule."""
    epochs: int = 3
    """Passes over the unseen texts."""
    batch_size: int = 8
    """Texts per optimiser step."""
    warmup_steps: int = 10
    """Warm-up steps of the learning rate, at most half of all steps."""
    weight_decay: float = 5e-4
    """Weight decay of the AdamW optimiser."""

    def __post_init__(self) -> None:
        # One spelling of one set of modules, for the cache, the parameters of a run and the registered version.
        names = set(map(str.strip, self.target_modules.split(",")))
        object.__setattr__(self, "target_modules", ",".join(sorted(names - {""})))


@dataclass(frozen=True)
class DetectorConfig:
    """Detectors and their settings."""

    detectors: str = AUTO
    """`auto`, `all` (also those on request, without those that sample: samia, cdd), or names separated by commas;
    adapted_wbc is wbc against the reference fine-tuned on unseen texts."""
    settings: Annotated[tuple[str, ...], _shown("NAME=VALUE ...")] = ()
    """Settings of detectors, e.g. surp.k=30, or surp.base.k=30 for base scores alone; override --settings-from."""
    settings_from: OptionalURI = None
    """Settings chosen by `fsd tune`: models:/fsd-arxiv@champion, runs:/<id> or a folder."""
    shots: OptionalInt = None
    """Unseen texts in the prefix of the detector `recall`. Default: 2; 1 with embedded models, of a short context."""

    @property
    def named(self) -> bool:
        """Whether detectors are named, so that each of them must be computable."""
        return self.detectors not in (AUTO, ALL)


@dataclass(frozen=True)
class FSDConfig:
    """Fine-tune on unseen texts and compare every detector's scores before and after."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: AdapterConfig = AdapterConfig()
    detection: DetectorConfig = DetectorConfig()
    adapter: OptionalURI = None
    """Use a saved adapter and skip fine-tuning: models:/fsd-arxiv@champion, runs:/<id>/adapter, a folder or a hub
    id."""
    placebo: str = "auto"
    """Control model trained on none of these texts, for the same procedure: auto (embedded), none, folder or hub id."""
    seed: int = 42
    """Random seed for the split, adapter initialisation and bootstrap; another seed draws other test texts as well."""
    audit_repeats: Literal[1, 3, 10] = 3
    """Divisions into folds over which the audit's blind classifier is averaged; 1 is fastest."""


@dataclass(frozen=True)
class APIConfig:
    """Access to a model behind a completions API; the key is read from $FSD_API_KEY."""

    base_url: OptionalURL = None
    """Address of the API up to /v1, e.g. http://localhost:8000/v1; needed with --model api:NAME."""
    start_token: Annotated[str, _shown("TOKEN")] = ""
    """Token put before every text, e.g. <|endoftext|>, if the server adds none, so that the first token is scored."""
    tokenizer: OptionalModel = None
    """The model's own tokenizer (`embedded`, folder or hub id): texts are sent as token ids, which dc_pdd needs."""
    concurrency: int = 8
    """Number of concurrent requests, one text each."""
    requests_per_minute: OptionalFloat = None
    """Maximum number of requests per minute."""
    price: OptionalFloat = None
    """Price of a million prompt tokens; adds the cost to the estimate that is printed before scoring."""


@dataclass(frozen=True)
class ShardConfig:
    """Many texts: with a folder as --out, each shard becomes a Parquet file there, and is computed once."""

    shard_rows: int = 10_000
    """Rows of a shard, if --out is a folder; the data may then be folders, patterns and URLs (s3://, hf://, ...)."""
    shard: Annotated[str | None, _shown("I/N")] = None
    """Compute one share of the shards: the I-th of N. Several processes may share a folder."""
    engine: Annotated[Literal["ray"] | None, _shown("{ray}")] = None
    """Hand the shards to workers of Ray (pip install 'fsd[ray]'). Default: this process computes them."""
    address: OptionalName = None
    """Address of a Ray cluster, or auto. Default: a cluster of this machine alone, for this command."""
    actors: OptionalInt = None
    """Workers, each with a model of its own. Default: one a GPU of the cluster, or one a CPU if it has none."""
    actor_gpus: OptionalFloat = None
    """GPUs of a worker; parts are allowed. Default: 1 if the cluster has any."""


@dataclass(frozen=True)
class ScoreConfig:
    """Base scores of texts, by a local model or through an API."""

    data: Paths
    """Files (JSONL, CSV, Parquet), or folders of them, with text and, optionally, context, label (1 member, 0
    non-member), group, date."""
    out: Annotated[str, arg(metavar="PATH")]
    """Output file (.parquet, .csv, .jsonl), or a folder of shards. Until then, an API's answers are in PATH.partial."""
    shards: ShardConfig = ShardConfig()
    model: ModelConfig = ModelConfig()
    adapter: OptionalURI = None
    """Adapter that is part of the model: models:/NAME@ALIAS, runs:/<id>/adapter, a folder or a hub id."""
    api: APIConfig = APIConfig()
    detection: DetectorConfig = DetectorConfig()
    columns: Columns = ""
    cleaning: CleaningConfig = CleaningConfig()
    chat: bool = False
    """The API is a chat API, which gives text alone: for --detectors samia,cdd."""
    too_long: Literal["refuse", "drop"] = "refuse"
    """Texts beyond the context that an API names: refuse them, or leave them out."""
    unseen: OptionalPath = None
    """File of texts that the model cannot have seen: the prefix of `recall` and the words of `neighbour`."""
    cutoff: OptionalDay = None
    """Last day of the model's data, if it is not a known one: dated non-members must be later."""
    domain: Domain = "arxiv"
    seed: int = 42
    """Random seed for the prefix, the neighbours and the bootstrap."""


@dataclass(frozen=True)
class TuneConfig:
    """Choose settings on the validation texts, then evaluate them once on the test texts."""

    base_run: FSDConfig = FSDConfig()
    """The run whose settings are tuned."""
    tune: Literal["detectors", "adapter"] = "detectors"
    """Settings of the detectors (no forward pass per trial), or of fine-tuning (one training per trial)."""
    objective: str = "auc"
    """Metric on the validation texts that is maximised: auc, tpr_at_1fpr, tpr_at_5fpr or tpr_at_10fpr."""
    sampler: Literal["tpe", "grid", "random"] = "tpe"
    """How settings are sampled; a space with no more settings than trials is searched exhaustively."""
    trials: int = 200
    """Finished trials per study: each detector's base score, its FSD, or the adapter. A grid is always completed."""
    timeout: OptionalFloat = None
    """Seconds after which no new trial starts, over all studies."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """How adapter trials are stopped early, from their validation score after each epoch."""
    folds: int = 5
    """Folds of the validation texts, without splitting families; the objective is the mean over the folds."""
    repeats: int = 4
    """Number of repeated divisions into folds."""
    storage: str = "sqlite:///mlruns/optuna.db"
    """Storage of the trials: a database URL, or journal:FILE."""
    study: OptionalName = None
    """Name of a study to continue, or to share between processes. Default: the domain and a hash of all settings."""
    workers: int = 1
    """Parallel worker processes; for adapters, one per card."""


@dataclass(frozen=True)
class Recipe:
    """Pretraining of a model from scratch; the defaults are those of the embedded target model."""

    hidden_size: int = 128
    """Hidden size."""
    layers: int = 4
    """Transformer layers."""
    heads: int = 4
    """Attention heads per layer."""
    vocabulary: int = 2048
    """Size of the byte-level BPE vocabulary, which is trained on the background only."""
    context: int = 512
    """Context length in tokens."""
    passes: int = 3
    """Passes over the background."""
    exposures: int = 2
    """Number of times that each member is seen; 0 makes a twin that never saw them."""
    batch_size: int = 16
    """Texts per optimiser step."""
    learning_rate: float = 2e-3
    """Peak learning rate of the cosine schedule."""
    weight_decay: float = 0.01
    """Weight decay of the AdamW optimiser."""
    seed: int = 0
    """Random seed for initialisation, the order of the texts and the choice of background."""


@dataclass(frozen=True, kw_only=True)
class ExaminedConfig:
    """The model under test: with an adapter, or behind an API."""

    model: ModelConfig = ModelConfig()
    adapter: OptionalURI = None
    """Adapter that is part of the model: models:/NAME@ALIAS, runs:/<id>/adapter, a folder or a hub id."""
    api: APIConfig = APIConfig()
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted job goes on. Default: beside what is asked about,
    with the ending .answers."""

    @property
    def examined(self) -> str:
        """The model in words, with its adapter if it has one."""
        if self.adapter:
            return f"{self.model.model} with {self.adapter}"
        return self.model.model


def check_training(config: AdapterConfig) -> None:
    """Refuse a number of a training that is out of range."""
    for name in ("rank", "alpha", "learning_rate", "epochs", "batch_size"):
        value = getattr(config, name)
        # Said so that NaN is refused as well.
        if not 0 < value < math.inf:
            raise UsageError(f"{name.replace('_', '-')} must be greater than 0; got {value}")
    if not 0 <= config.dropout < 1:
        raise UsageError(f"dropout must be at least 0 and below 1; got {config.dropout}")
    for name in ("warmup_steps", "weight_decay"):
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise UsageError(f"{name.replace('_', '-')} must be at least 0; got {value}")


def settings_of(config: type[Any]) -> Iterator[Field[Any]]:
    """The settings of a configuration class and of its groups."""
    for entry in fields(config):
        if is_dataclass(entry.type):
            yield from settings_of(cast("type[Any]", entry.type))
        else:
            yield entry


def groups_of(config: type[Any]) -> Iterator[str]:
    """The names of the groups of settings of a configuration class, however deep."""
    for entry in fields(config):
        if is_dataclass(entry.type):
            yield entry.name
            yield from groups_of(cast("type[Any]", entry.type))


def flags(config: Any) -> dict[str, Any]:
    """Every setting of a configuration under the name of its flag, those of its groups included."""
    values: dict[str, Any] = {}
    for setting in fields(config):
        value = getattr(config, setting.name)
        values |= flags(value) if is_dataclass(value) else {setting.name: value}
    return values


def again(command: str, arguments: Sequence[str], config: Any, default: Any) -> str:
    """A command with its arguments and the settings that differ from the default, for a shell."""
    return shlex.join(["fsd", command, *arguments, *typed(config, default)])


def typed(config: Any, default: Any) -> list[str]:
    """What a user types for the settings that differ from those of another configuration of the same class."""
    usual = flags(default)
    words = []
    for setting, value in flags(config).items():
        name = setting.replace("_", "-")
        if value == usual[setting]:
            continue
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, tuple):
            words.append(f"--{name}")
            words += map(str, value)
        # One that begins with a minus sign would be taken for a flag.
        elif str(value).startswith("-"):
            words.append(f"--{name}={value}")
        else:
            words += [f"--{name}", str(value)]
    return words
