"""Adapters: configuration for an architecture, saving with the identity of the base, attaching to that base only.

An adapter may come from somebody else, so `attach` trusts none of its files: its settings are limited to those that
leave the base as it was, its weights are read from safetensors alone, and the base is compared bitwise afterwards.
"""

import contextlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import xxhash
from pydantic import AfterValidator, ConfigDict, Field, create_model

from fsd.config import AdapterConfig
from fsd.distributed import is_main_process
from fsd.errors import UsageError, first_line
from fsd.files import CHECKSUMS, SMALL, check_regular, checksum_lines, checksums, digest, read_json
from fsd.leftovers import write_whole
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.progress import note

BASE_FILE = "base.json"
"""File beside the adapter with the identity of its base model."""
CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
ADALORA_START = 1.5
"""Initial over final rank budget of AdaLoRA (arXiv 2303.10512, §4.1)."""
ADALORA_MIN_STEPS = 5
ADAPTERS = ("LORA", "IA3", "ADALORA")
"""Adapters whose modules can be bypassed one by one, so that the base is restored bitwise when they are off."""
INITIALISATIONS = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that read and write the adapter alone; pissa, olora and others rewrite the base."""
MOST_NAMES = 10_000
"""Of modules in a list, each of which peft compares with all modules of the base; and the highest rank."""
LARGEST_WEIGHT = 1e6
"""Absolute value of a weight above which no score can be trusted, if it is finite at all."""


def _names(value: Any) -> Any:
    """Refuse patterns, which peft takes a string or a key for and which may take for ever, and too many names."""
    names = value if isinstance(value, list | dict) else [] if value is None else [value]
    if len(names) > MOST_NAMES or not all(isinstance(one, str) and re.fullmatch(r"\^?[\w.-]*", one) for one in names):
        raise ValueError(f"must be at most {MOST_NAMES:,} names of modules without patterns; got {str(value)[:60]!r}")
    return value


Names = Annotated[Any, AfterValidator(_names)]
Rank = Annotated[int, Field(ge=1, le=MOST_NAMES)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SETTINGS: dict[str, Any] = {
    "peft_type": (str, ...),
    "rank_pattern": (Annotated[dict[str, Rank | list[bool]] | None, AfterValidator(_names)], None),
    "alpha_pattern": (Annotated[dict[str, Number] | None, AfterValidator(_names)], None),
    "layers_to_transform": (int | list[int] | None, None),
    **dict.fromkeys(("r", "target_r", "init_r"), (Rank, 1)),
    **dict.fromkeys(("total_step", "deltaT"), (Count, 1)),
    **dict.fromkeys(("lora_alpha", "lora_dropout", "tinit", "tfinal"), (Number, 0)),
    **dict.fromkeys(("beta1", "beta2", "orth_reg_weight"), (Number, 0)),
    **dict.fromkeys(("target_modules", "exclude_modules", "feedforward_modules", "layers_pattern"), (Names, None)),
    **dict.fromkeys(("task_type", "base_model_name_or_path", "revision", "inference_mode"), (Any, None)),
    **dict.fromkeys(("auto_mapping", "peft_version", "fan_in_fan_out", "use_rslora", "use_dora"), (Any, None)),
    **dict.fromkeys(("lora_bias", "init_ia3_weights"), (Any, None)),
}
"""Settings of peft that leave the base as it is with any value of their type; all others must have their default."""


def attach(language_model: LanguageModel, folder: Path, *, warn: Callable[[str], None] = note) -> None:
    """Attach a saved adapter to the base model that it was trained on.

    The base is hashed before and after: if an adapter changes it in spite of all checks, the model gives no more
    numbers. A UsageError if the adapter is none, damaged, cannot be switched off bitwise or was trained on another
    base. `warn` receives a line if it has no checksums.
    """
    from peft import PeftModel

    _check_precision(language_model, check_adapter(folder))
    check_base(language_model.identity, folder)
    if is_main_process() and not (folder / CHECKSUMS).exists():
        warn(f"adapter: it has no {CHECKSUMS}, so damage to its files would go unnoticed")
    detach(language_model)
    before = _base_digest(language_model.base)
    device = str(language_model.device)
    failure: Exception | None = None
    try:
        with quiet_peft():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            language_model.model = PeftModel.from_pretrained(language_model.model, str(folder), torch_device=device)
    except Exception as error:  # what peft raises for a configuration that makes no sense has no common type
        failure = error
        strip(language_model)
    if _base_digest(language_model.base) != before:
        language_model.intact = False
        raise UsageError(f"adapter must leave its base bitwise as it was; {folder} changes it: load the base again")
    if failure:
        base = language_model.identity.id
        raise UsageError(f"adapter must fit its base {base!r}; {folder} does not: {first_line(failure)}") from failure
    language_model.model.eval()


def _base_digest(base: Any) -> str:
    """Hash of a network's modules and tensors in the order of their traversal, with the adapter's modules bypassed."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    digest = xxhash.xxh3_128()
    numbers: dict[int, int] = {}  # tied tensors are hashed once, and as tied

    def add(module: Any, path: str) -> None:
        if isinstance(module, BaseTunerLayer):
            module = module.get_base_layer()
        digest.update(f"{path} {type(module).__name__}".encode())
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            number = numbers.setdefault(id(tensor), len(numbers))
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {number}".encode())
            if number == len(numbers) - 1 and not tensor.is_meta:  # accelerate keeps offloaded weights elsewhere
                digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        for name, child in module.named_children():
            add(child, f"{path}.{name}")

    add(base, "")
    return digest.hexdigest()


def detach(language_model: LanguageModel) -> None:
    """Remove the adapter, if there is one; the base is as it was before."""
    if language_model.adapted:
        language_model.model = language_model.base
        strip(language_model)


def strip(language_model: LanguageModel) -> None:
    """Restore the modules of the base that peft replaced in place before training or loading failed."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    base = language_model.model
    for name, module in list(base.named_modules()):
        if isinstance(module, BaseTunerLayer):
            parent, _, child = name.rpartition(".")
            setattr(base.get_submodule(parent), child, module.get_base_layer())
    vars(base).pop("peft_config", None)
    base.eval()


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence warnings of peft that are wrong or that users cannot act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*fan_in_fan_out")
        # peft looks for AdaLoRA's rank pattern under other names; the outputs are those of the saved adapter.
        warnings.filterwarnings("ignore", message=".*rank_pattern")
        yield


def _check_precision(language_model: LanguageModel, method: str) -> None:
    """On quantized weights, methods other than lora pass float32 on to layers of another dtype."""
    if language_model.bits and language_model.dtype != "float32" and method != "lora":
        raise UsageError(
            f"{method} on {language_model.bits}-bit weights must be computed in float32; got dtype "
            f"{language_model.dtype}: take lora or dtype float32"
        )


def check_adapter(folder: Path) -> str:
    """Method of a saved adapter, if it is whole, by its checksums if any, and leaves its base as it is."""
    method, expected = _check_config(folder), checksums(folder)
    for file in (folder / name for name in (CONFIG_FILE, WEIGHTS_FILE, BASE_FILE) if expected is not None):
        if not file.exists() or (expected or {}).get(file.name) != digest(file):
            raise UsageError(f"adapter must be as it was saved; {file} differs from its checksum in {CHECKSUMS}")
    _check_weights(folder / WEIGHTS_FILE)
    _trained_on(folder)
    return method


def _check_weights(file: Path) -> None:
    """Refuse weights that would make every score infinite or no number."""
    from safetensors import SafetensorError, safe_open

    check_regular(file, f"adapter must hold its weights as {WEIGHTS_FILE}; {file} cannot be read")
    try:
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                if not tensors.get_tensor(name).float().abs().max() <= LARGEST_WEIGHT:  # nor NaN
                    raise UsageError(f"adapter must have weights up to {LARGEST_WEIGHT:g}; {file} has others: {name}")
    except (SafetensorError, OSError, RuntimeError) as error:
        message = f"adapter must hold its weights as a whole {WEIGHTS_FILE}; {file} is damaged: {first_line(error)}"
        raise UsageError(message) from error


def _check_config(folder: Path) -> str:
    """Method of a saved adapter, which must be one that can be switched off and leaves the base as it is."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftType

    file = folder / CONFIG_FILE
    if not file.exists():
        raise UsageError(f"adapter must be a folder with {CONFIG_FILE}; {folder} has none")
    if not (folder / WEIGHTS_FILE).exists():
        raise UsageError(f"adapter must hold its weights as {WEIGHTS_FILE}; {folder} does not")
    form = create_model("Configuration", __config__=ConfigDict(extra="allow"), **SETTINGS)
    config = dict(read_json(form, file, "an adapter's configuration", largest=SMALL))
    kind = str(config["peft_type"])
    if kind not in ADAPTERS:
        raise UsageError(f"adapter must be one of {', '.join(ADAPTERS)}, so that it can be switched off; got {kind}")
    defaults = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind)]
    for name, value in config.items():
        allowed: tuple[Any, ...] = (getattr(defaults, name, None), None, False, [], {})
        if name == "init_lora_weights":
            allowed = INITIALISATIONS
        if name not in SETTINGS and value not in allowed:
            raise UsageError(f"adapter must be of a kind that leaves its base as it was; {name} is {value!r} in {file}")
    return kind.lower()


def _trained_on(folder: Path) -> BaseIdentity:
    file = folder / BASE_FILE
    if not file.exists():
        raise UsageError(f"adapter must record the base it was trained on; {folder} has no {BASE_FILE}")
    return read_json(BaseIdentity, file, "the identity of a base", largest=SMALL)


def check_base(identity: BaseIdentity, folder: Path) -> None:
    """Refuse a saved adapter that does not record `identity` as its base."""
    trained = _trained_on(folder)
    if trained.fingerprint != identity.fingerprint:
        raise UsageError(
            f"adapter must be used on its own base model {trained.id!r} (weights {trained.fingerprint[:12]}); "
            f"got {identity.id!r} (weights {identity.fingerprint[:12]})"
        )


def save_adapter(language_model: LanguageModel, folder: Path) -> None:
    """Save weights, configuration, checksums and, last, the identity of the base, without which it is no adapter."""
    from safetensors import SafetensorError

    identity = language_model.identity
    for config in language_model.model.peft_config.values():
        config.base_model_name_or_path = identity.id  # not a path on this machine
        config.revision = identity.revision or None
    # To find out whether embeddings were resized, peft would look for the base on the hub.
    try:
        language_model.model.save_pretrained(str(folder), save_embedding_layers=False)
    except SafetensorError as error:  # in place of an OSError
        raise OSError(f"the weights cannot be written to {folder}: {error}") from error
    (folder / "README.md").unlink(missing_ok=True)
    base = (json.dumps(asdict(identity), indent=2) + "\n").encode()
    contents = {name: (folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)} | {BASE_FILE: base}
    for name, content in {CHECKSUMS: checksum_lines(contents).encode(), BASE_FILE: base}.items():
        write_whole(folder / name, content)


def adapter_fingerprint(language_model: LanguageModel) -> str:
    """Hash of the attached adapter's weights and configuration in memory; "" without an adapter."""
    if not language_model.adapted:
        return ""
    from peft import get_peft_model_state_dict

    digest = xxhash.xxh3_128()
    irrelevant = {"base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"}
    settings = {k: v for k, v in language_model.model.active_peft_config.to_dict().items() if k not in irrelevant}
    plain = lambda value: sorted(value) if isinstance(value, set | frozenset) else str(value)  # noqa: E731
    digest.update(json.dumps(settings, sort_keys=True, default=plain).encode())
    weights = get_peft_model_state_dict(language_model.model, save_embedding_layers=False)
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def peft_config(language_model: LanguageModel, config: AdapterConfig, *, steps: int) -> Any:
    """The peft configuration of an adapter that suits the architecture; AdaLoRA plans its budget over the steps."""
    from peft import AdaLoraConfig, IA3Config, LoraConfig
    from peft.utils import constants

    _check_precision(language_model, config.method)
    architecture = language_model.base.config.model_type
    mapping = getattr(constants, f"TRANSFORMERS_MODELS_TO_{config.method.upper()}_TARGET_MODULES_MAPPING")
    targets = _targets(language_model, config, mapping, architecture)
    common: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": targets}
    if config.method == "ia3":
        known = constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING.get(architecture, [])
        forward = [] if targets == "all-linear" else [name for name in known if name in targets]
        return IA3Config(**common, feedforward_modules=forward)
    scale = {"lora_alpha": config.alpha, "lora_dropout": config.dropout, "bias": "none"}
    if config.method == "lora":
        return LoraConfig(**common, **scale, r=config.rank)
    if steps < ADALORA_MIN_STEPS:
        raise UsageError(f"adalora must have at least {ADALORA_MIN_STEPS} steps to move its budget; got {steps}")
    return AdaLoraConfig(
        **common,
        **scale,
        init_r=math.ceil(ADALORA_START * config.rank),
        target_r=config.rank,
        total_step=steps,
        tinit=steps // 10,
        tfinal=steps // 2,
        deltaT=1,
    )


def _targets(
    language_model: LanguageModel, config: AdapterConfig, mapping: Mapping[str, Any], architecture: str
) -> str | list[str]:
    from transformers.pytorch_utils import Conv1D

    if config.target_modules == "all-linear":
        return "all-linear"
    if config.target_modules == "auto":
        if architecture not in mapping:
            raise UsageError(
                f"target-modules must be given for {config.method} on architecture {architecture!r}, which has no "
                "known targets; allowed: all-linear, or module names separated by commas"
            )
        return list(mapping[architecture])
    wanted = [name.strip() for name in config.target_modules.split(",") if name.strip()]
    # without the output embedding, whose plain weights trl reads
    head = language_model.base.get_output_embeddings()
    layers = ((n, m) for n, m in language_model.base.named_modules() if isinstance(m, torch.nn.Linear | Conv1D))
    linear = {name.rsplit(".", 1)[-1] for name, module in layers if module is not head}
    missing = [name for name in wanted if name not in linear]
    if missing or not wanted:
        raise UsageError(f"target-modules must be auto, all-linear or of {', '.join(sorted(linear))}; got {missing}")
    return wanted


def orthogonal_penalty(model: Any) -> torch.Tensor | float:
    """AdaLoRA's penalty γ · mean of ‖PᵀP − I‖_F (arXiv 2303.10512, eq. 4), which trl drops; 0 for other adapters."""
    config = model.peft_config["default"]
    if not getattr(config, "orth_reg_weight", 0):
        return 0.0
    norms = []
    for name, weight in model.named_parameters():
        if "lora_A" in name or "lora_B" in name:
            gram = weight @ weight.T if "lora_A" in name else weight.T @ weight
            norms.append(torch.linalg.matrix_norm(gram - torch.eye(len(gram), device=gram.device, dtype=gram.dtype)))
    penalty: torch.Tensor = config.orth_reg_weight * torch.stack(norms).mean()
    return penalty
