"""Everything a user can set: frozen dataclasses, the help text under each default."""

from dataclasses import dataclass, field
from typing import Literal

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Method = Literal["lora", "ia3", "adalora"]


@dataclass(frozen=True)
class DataConfig:
    """Which texts, and how they are split."""

    domain: str = "arxiv"
    """Domain of the texts; names the experiment fsd-<domain> and the registered model."""
    data: tuple[str, ...] = ()
    """Your own JSONL, CSV or Parquet files, together one benchmark: text, label (1 member, 0 non-member), optional
    group and date; or names of published benchmarks, e.g. wikimia:64."""
    columns: str = ""
    """Other column names, e.g. text=Example_A,label=Label,group=ID."""
    split: Literal["grouped", "paper"] = "grouped"
    """grouped keeps articles and near-duplicates whole; paper draws rows as the papers do, and may leak."""
    unseen: float | str = 0.3
    """Share of the non-members to fine-tune on, or a file of other texts that the model cannot have seen."""
    validation: float | None = None
    """Share of the benchmark for thresholds; 0.2 if grouped, none if paper."""


@dataclass(frozen=True)
class ModelConfig:
    """Which model is asked, and how it is run."""

    model: str = "embedded"
    """embedded, a folder or a hub id; for pipelines.score also api:NAME, a model behind an API."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    reference_model: str | None = None
    """Smaller model of the same family for the detector reference; embedded has its own."""
    neighbour_model: str | None = None
    """Masked language model for the detector neighbour, or `words` for word swaps that need no model."""
    neighbours: int | None = None
    """Neighbours of a text; 25 by a masked model as in the paper, 5 by word swaps."""
    frequencies: str | None = None
    """Token-frequency table for dc_pdd, made by pipelines.frequencies; embedded has its own."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or spread: over all cards, then memory, for a model larger than a card."""
    dtype: Dtype = "auto"
    """Precision of training and scoring; auto is bfloat16 on cuda, else float32."""
    bits: Literal[4, 8] | None = None
    """Bits to round the weights to, for a model larger than the memory; needs bitsandbytes."""
    max_batch_tokens: int | None = None
    """Padded tokens per forward pass; by default what suits the device."""
    cache: str | None = None
    """Folder for what models say about texts, so that it is asked once, or none; default $FSD_CACHE, else
    ~/.cache/fsd."""


@dataclass(frozen=True)
class AdapterConfig:
    """How the adapter is trained; defaults of the FSD paper, §4.1."""

    method: Method = "lora"
    """Kind of adapter."""
    rank: int = 16
    """Rank r of lora; the rank that adalora ends with on average."""
    alpha: int = 32
    """Scale α of lora and adalora."""
    dropout: float = 0.05
    """Dropout of lora and adalora."""
    target_modules: str = "auto"
    """auto (by architecture), all-linear, or names separated by commas."""
    learning_rate: float = 1e-3
    """Peak of the cosine schedule."""
    epochs: int = 3
    """Passes over the unseen texts."""
    batch_size: int = 8
    """Texts per step."""
    warmup_steps: int = 10
    """Steps of rising learning rate, at most half of all."""
    weight_decay: float = 5e-4
    """Of AdamW."""


@dataclass(frozen=True)
class DetectorConfig:
    """Which detectors, with which settings."""

    detectors: str = "all"
    """all, or names separated by commas."""
    settings: tuple[str, ...] = ()
    """Settings of detectors, e.g. surp.k=30 dc_pdd.cap=0.1."""
    settings_from: str | None = None
    """Settings found by pipelines.tune: models:/fsd-arxiv@champion, runs:/<id> or a folder; --settings go before."""
    shots: int = 2
    """Unseen texts in the prefix of the detector recall."""


@dataclass(frozen=True)
class FSDConfig:
    """Fine-tune on unseen texts and compare every detector's score before and after."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: AdapterConfig = field(default_factory=AdapterConfig)
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    adapter: str | None = None
    """Reuse an adapter instead of training: models:/fsd-arxiv@champion, runs:/<id>/adapter or a folder."""
    placebo: str = "auto"
    """Model that saw neither side and gets the same job: auto (one that is embedded), none, a folder or a hub id."""
    seed: int = 42
    """Of the split, the adapter and the intervals."""


@dataclass(frozen=True)
class APIConfig:
    """How a model behind a completions API is asked; the key is read from $FSD_API_KEY."""

    base_url: str | None = None
    """Address of the API up to /v1, e.g. http://localhost:8000/v1, for --model api:NAME."""
    start_token: str = ""
    """Start token to put before every text, e.g. <|endoftext|>, where the server puts none: the first token counts."""
    tokenizer: str | None = None
    """The model's own tokenizer (embedded, a folder or a hub id): token ids are sent, and dc_pdd can be computed."""
    concurrency: int = 8
    """Texts, and so requests, under way at once."""
    requests_per_minute: float | None = None
    """Most requests that begin in a minute."""
    price: float | None = None
    """Of a million prompt tokens; adds the cost to the estimate before the start."""


@dataclass(frozen=True)
class ScoreConfig:
    """Base scores of any texts, by a model or through an API."""

    data: tuple[str, ...]
    """JSONL, CSV or Parquet files: text, optional label (1 member, 0 non-member), group and date."""
    out: str
    """File for the scores: .parquet, .csv or .jsonl. FILE.partial keeps an API's answers until it is written."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    columns: str = ""
    """Other column names, e.g. text=Example_A,label=Label,group=ID."""
    unseen: str | None = None
    """File of texts that the model cannot have seen, for the prefix of recall and the words of neighbour."""
    domain: str = "arxiv"
    """Names the experiment fsd-<domain>."""
    seed: int = 42
    """Of the prefix, the neighbours and the intervals."""


@dataclass(frozen=True)
class TuneConfig:
    """Choose settings on the validation texts, then open the test texts once."""

    job: FSDConfig = field(default_factory=FSDConfig)
    """The main job, whose settings are tuned."""
    tune: Literal["detectors", "adapter"] = "detectors"
    """detectors: settings of each detector, without a forward pass; adapter: how it is trained, a training a trial."""
    objective: Literal["auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr"] = "auc"
    """What is to be high on the validation texts."""
    sampler: Literal["tpe", "grid", "random"] = "tpe"
    """How settings are drawn; a space with no more settings than trials is searched whole."""
    trials: int = 200
    """Finished trials of each study: a detector, base and FSD apart, or the adapter. A grid is run whole."""
    timeout: float | None = None
    """Seconds after which no trial is begun, over all studies."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """Which adapters are given up between epochs, by their validation score."""
    folds: int = 5
    """Parts of the validation texts, by family, whose mean is the objective."""
    repeats: int = 4
    """Fresh divisions into folds."""
    storage: str = "sqlite:///mlruns/optuna.db"
    """Where trials are kept: a database URL, or journal:FILE."""
    study: str | None = None
    """Name to continue under, or to share with other processes; by default the domain and a hash of all settings."""
    workers: int = 1
    """Processes that share the trials; one per card for adapters."""


@dataclass(frozen=True)
class Recipe:
    """How a model is pretrained from scratch; the defaults are those of the embedded target."""

    hidden_size: int = 128
    """Width."""
    layers: int = 4
    """Transformer layers."""
    heads: int = 4
    """Attention heads per layer."""
    vocabulary: int = 2048
    """Tokens of the byte-level BPE vocabulary, trained on the background alone."""
    context: int = 512
    """Most tokens in one pass."""
    passes: int = 3
    """Passes over the background."""
    exposures: int = 2
    """Times that each member is seen; 0 makes a twin that never saw them."""
    batch_size: int = 16
    """Texts per step."""
    learning_rate: float = 2e-3
    """Peak of the cosine schedule."""
    weight_decay: float = 0.01
    """Of AdamW."""
    seed: int = 0
    """Of initialisation, order and the choice of background."""
