"""Adapters: configuration for an architecture, saving with the identity of the base, attaching to that base only.

An adapter may come from somebody else, so `attach` trusts none of its files: its settings are limited to those that
leave the base as it was, its weights are read from safetensors alone, and the base is compared bitwise afterwards.
"""

import contextlib
import copy
import functools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import xxhash
from pydantic import AfterValidator, BaseModel, Field

from fsd.config import AdapterConfig
from fsd.distributed import is_main_process
from fsd.errors import UsageError, first_line, refusing
from fsd.files import CHECKSUMS, SMALL, check_regular, checksum_lines, checksums, digest, read_json
from fsd.leftovers import write_whole
from fsd.models.gguf import gguf_file
from fsd.models.language_model import BaseIdentity, LanguageModel, outline
from fsd.net.hub import fingerprint, model_size
from fsd.progress import note

BASE_FILE = "base.json"
"""File beside the adapter with the identity of its base model."""
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
ADALORA_START = 1.5
"""Initial over final rank budget of AdaLoRA (arXiv 2303.10512, §4.1)."""
ADALORA_MIN_STEPS = 5
ADAPTERS = ("LORA", "IA3", "ADALORA")
"""Adapters whose modules can be bypassed one by one, so that the base is restored bitwise when they are off."""
INITIALISATIONS = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that read and write the adapter alone; pissa, olora and others rewrite the base."""
RESTORABLE: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "init_lora_weights": INITIALISATIONS,
    "layer_replication": (None,),
}
"""Settings of peft that change the base itself → values with which they do not."""
NAME = re.compile(r"(\^|\.\*\\\.)?[\w.-]*")
"""Name of a module, which is no pattern; peft writes ^ before all of a path, and .*\\. before the end of one."""
MOST_NAMES = 10_000
"""Of modules in a list, each of which peft compares with all modules of the base; and the highest rank."""
LARGEST_WEIGHT = 1e6
"""Absolute value of a weight above which no score can be trusted, if it is finite at all."""


def _names(value: Any) -> Any:
    """Refuse patterns, which peft takes a string or a key for and which may take for ever, and too many names."""
    if value is None:
        return value
    names = value if isinstance(value, list | dict) else [value]
    if len(names) > MOST_NAMES or not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        raise ValueError(f"must be at most {MOST_NAMES:,} names of modules without patterns; got {str(value)[:60]!r}")
    return value


Names = Annotated[Any, AfterValidator(_names)]
Rank = Annotated[int, Field(ge=1, le=MOST_NAMES)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


FREE = frozenset(
    (
        "task_type",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "auto_mapping",
        "peft_version",
        "fan_in_fan_out",
        "use_rslora",
        "use_dora",
        "lora_bias",
        "init_ia3_weights",
    )
)
"""Settings of peft that leave the base as it is with any value."""


class Settings(BaseModel, extra="allow"):
    """Settings of peft that leave the base as it is with any value of their type; `FREE` ones are not read at all.

    All others must have their default.
    """

    peft_type: str
    rank_pattern: Annotated[dict[str, Rank | list[bool]] | None, AfterValidator(_names)] = None
    alpha_pattern: Annotated[dict[str, Number] | None, AfterValidator(_names)] = None
    layers_to_transform: int | list[int] | None = None
    r: Rank = 1
    target_r: Rank = 1
    init_r: Rank = 1
    total_step: Count = 1
    deltaT: Count = 1  # noqa: N815 - peft's name
    lora_alpha: Number = 0
    lora_dropout: Number = 0
    tinit: Number = 0
    tfinal: Number = 0
    beta1: Number = 0
    beta2: Number = 0
    orth_reg_weight: Number = 0
    target_modules: Names = None
    target_parameters: Names = None
    exclude_modules: Names = None
    feedforward_modules: Names = None
    layers_pattern: Names = None


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
    digest_without = _base_digest(language_model.base)
    device = str(language_model.device)
    failure: Exception | None = None
    try:
        with quiet_peft():
            # Weights that are missing would stay as they were drawn by chance.
            warnings.filterwarnings("error", message="Found missing adapter keys")
            language_model.model = PeftModel.from_pretrained(language_model.model, str(folder), torch_device=device)
    # What peft raises for a configuration that makes no sense has no common type.
    except Exception as error:
        failure = error
        strip(language_model)
    # Also after a failure, which may come after a change of the base.
    if _base_digest(language_model.base) != digest_without:
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
    numbers: dict[int, int] = {}

    def add(module: Any, path: str) -> None:
        if isinstance(module, BaseTunerLayer):
            module = module.get_base_layer()
        digest.update(f"{path} {type(module).__name__}".encode())
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            # Tied tensors are hashed once, and as tied: untying them would change the base as well.
            new = id(tensor) not in numbers
            number = numbers.setdefault(id(tensor), len(numbers))
            digest.update(f"{_outline(name, tensor)} {number}".encode())
            # accelerate keeps offloaded weights elsewhere.
            if new and not tensor.is_meta:
                digest.update(_bytes(tensor))
        for name, child in module.named_children():
            add(child, f"{path}.{name}")

    add(base, "")
    return digest.hexdigest()


def base_weights(network: Any) -> list[torch.nn.Parameter]:
    """The weights of a base, each once, without those of an adapter in it."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    weights: dict[torch.nn.Parameter, None] = {}

    def add(module: Any) -> None:
        if isinstance(module, BaseTunerLayer):
            module = module.get_base_layer()
        weights.update(dict.fromkeys(module.parameters(recurse=False)))
        for child in module.children():
            add(child)

    add(network)
    return list(weights)


def _outline(name: str, tensor: torch.Tensor) -> str:
    """What a tensor is, without its numbers."""
    return f"{name} {tensor.dtype} {tuple(tensor.shape)}"


def _bytes(tensor: torch.Tensor) -> Any:
    # numpy has no bfloat16, so that its bits are read as whole numbers.
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()


def detach(language_model: LanguageModel) -> None:
    """Remove the adapter, if there is one; the base is as it was before.

    Also one that another training has left in the network, around which there is nothing that tells of it.
    """
    # First the model, whose modules `strip` restores.
    language_model.model = language_model.base
    strip(language_model)


def strip(language_model: LanguageModel) -> None:
    """Restore the modules of the base that peft replaced in place; also after training or loading failed half-way."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    base = language_model.model

    def restore(parent: Any) -> None:
        for name, module in list(parent.named_children()):
            original = module
            # Fused experts have one within the other, whose base is that of both.
            if isinstance(module, BaseTunerLayer):
                original = module.get_base_layer()
                setattr(parent, name, original)
            restore(original)

    restore(base)
    vars(base).pop("peft_config", None)
    base.eval()


def check_trainable(language_model: LanguageModel) -> None:
    """Refuse a network into which transformers has put an adapter, whose place that of a training would take."""
    if getattr(language_model.base, "_hf_peft_config_loaded", False):
        raise UsageError(
            "the model's adapter must be attached by peft, as PeftModel.from_pretrained(base, folder); transformers "
            "has put it into the network itself: attach it so, or give the model without it"
        )


def check_restorable(language_model: LanguageModel) -> None:
    """Refuse attached adapters that leave another base behind where they are off."""
    for config in language_model.model.peft_config.values():
        for name, allowed in RESTORABLE.items():
            value = getattr(config, name, allowed[0])
            if value not in allowed:
                raise UsageError(
                    f"the model's adapter must leave its base as it was, which is scored too; {name} is {value!r}"
                )


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence warnings of peft that are wrong or that users cannot act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*fan_in_fan_out")
        # peft looks for the patterns of AdaLoRA and of fused experts under other names; the outputs are right.
        warnings.filterwarnings("ignore", message=".*(rank|alpha)_pattern")
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
    method = _check_config(folder)
    expected = checksums(folder)
    # Adapters of other programs have no checksums.
    if expected is not None:
        for name in (CONFIG_FILE, WEIGHTS_FILE, BASE_FILE):
            file = folder / name
            if not file.exists() or expected.get(name) != digest(file):
                raise UsageError(f"adapter must be as it was saved; {file} differs from its checksum in {CHECKSUMS}")
    _check_weights(folder / WEIGHTS_FILE)
    _trained_on(folder)
    return method


def _check_weights(file: Path) -> None:
    """Refuse weights that would make every score infinite or no number."""
    from safetensors import SafetensorError, safe_open

    check_regular(file, f"adapter must hold its weights as {WEIGHTS_FILE}; {file} cannot be read")
    must = f"adapter must hold its weights as a whole {WEIGHTS_FILE}; {file} is damaged: "
    with refusing(must, SafetensorError, OSError, RuntimeError), safe_open(file, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            largest = tensors.get_tensor(name).float().abs().max()
            # Not `>`, which is false for NaN.
            if not largest <= LARGEST_WEIGHT:
                raise UsageError(f"adapter must have weights up to {LARGEST_WEIGHT:g}; {file} has others: {name}")


def _check_config(folder: Path) -> str:
    """Method of a saved adapter, which must be one that can be switched off and leaves the base as it is."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftType

    file = folder / CONFIG_FILE
    if not file.exists():
        raise UsageError(f"adapter must be a folder with {CONFIG_FILE}; {folder} has none")
    if not (folder / WEIGHTS_FILE).exists():
        raise UsageError(f"adapter must hold its weights as {WEIGHTS_FILE}; {folder} does not")
    config = read_json(Settings, file, "an adapter's configuration", largest=SMALL)
    kind = config.peft_type
    if kind not in ADAPTERS:
        raise UsageError(f"adapter must be one of {', '.join(ADAPTERS)}, so that it can be switched off; got {kind}")
    defaults = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind)]
    # Whatever a setting of another version of peft means: an empty one does nothing.
    empty: tuple[Any, ...] = (None, False, [], {})
    for name, value in (config.model_extra or {}).items():
        allowed = (getattr(defaults, name, None), *empty)
        if name == "init_lora_weights":
            allowed = INITIALISATIONS
        if name not in FREE and value not in allowed:
            raise UsageError(f"adapter must be of a kind that leaves its base as it was; {name} is {value!r} in {file}")
    return kind.lower()


def _trained_on(folder: Path) -> BaseIdentity:
    file = folder / BASE_FILE
    if not file.exists():
        raise UsageError(f"adapter must record the base it was trained on; {folder} has no {BASE_FILE}")
    return read_json(BaseIdentity, file, "the identity of a base", largest=SMALL)


def check_unloaded(folder: Path, model: str, revision: str | None = None) -> None:
    """Refuse a saved adapter that is damaged, or that was trained on another base, without loading the base."""
    check_adapter(folder)
    base = model_size(model, revision)
    # A GGUF file is converted, and a hub id downloaded, before its weights have a fingerprint.
    if base and not gguf_file(model):
        check_base(BaseIdentity(model, "", fingerprint(base.folder)), folder)


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
        # Not the folder in which the base lies on this machine.
        config.base_model_name_or_path = identity.id
        config.revision = identity.revision or None
        for name in ("target_modules", "target_parameters", "feedforward_modules"):
            modules = getattr(config, name, None)
            # The order of a set differs from process to process, and with it the checksum.
            if isinstance(modules, set):
                setattr(config, name, sorted(modules))
    # To find out whether embeddings were resized, peft would look for the base on the hub.
    try:
        language_model.model.save_pretrained(str(folder), save_embedding_layers=False)
    # safetensors has an error of its own for a full disk.
    except SafetensorError as error:
        raise OSError(f"the weights cannot be written to {folder}: {error}") from error
    (folder / "README.md").unlink(missing_ok=True)
    base = (json.dumps(asdict(identity), indent=2) + "\n").encode()
    contents = {name: (folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}
    lines = checksum_lines(contents | {BASE_FILE: base})
    write_whole(folder / CHECKSUMS, lines.encode())
    write_whole(folder / BASE_FILE, base)


def adapter_fingerprint(language_model: LanguageModel) -> str:
    """Hash of the attached adapter's weights and configuration in memory; "" without an adapter."""
    if not language_model.adapted:
        return ""
    from peft import get_peft_model_state_dict

    digest = xxhash.xxh3_128()
    settings = language_model.model.active_peft_config.to_dict()
    # They tell where an adapter comes from, not what it computes.
    for name in ("base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"):
        settings.pop(name, None)
    digest.update(json.dumps(settings, sort_keys=True, default=_as_json).encode())
    weights = get_peft_model_state_dict(language_model.model, save_embedding_layers=False)
    for name, weight in sorted(weights.items()):
        digest.update(_outline(name, weight).encode())
        digest.update(_bytes(weight))
    return digest.hexdigest()


def has_effect(language_model: LanguageModel, text: str) -> bool:
    """Whether the attached adapter changes any logit of a text: a new one of LoRA, whose B is zero, does not."""
    (ids,) = language_model.tokens([text])
    window = [language_model.start, *ids][: language_model.context]
    x = torch.tensor([window], device=language_model.device)
    logits = []
    for tuned in (False, True):
        with language_model.state(tuned=tuned) as network:
            logits.append(network(input_ids=x, use_cache=False).logits)
    without, with_adapter = logits
    return not torch.equal(without, with_adapter)


def _as_json(value: object) -> object:
    # The order of a set of names differs from process to process.
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def peft_config(language_model: LanguageModel, config: AdapterConfig, *, steps: int) -> Any:
    """The peft configuration of an adapter that suits the architecture; AdaLoRA plans its budget over the steps."""
    _check_precision(language_model, config.method)
    base = language_model.base
    # Without weights, so that a trial changes nothing.
    with torch.device("meta"):
        network = type(base)(copy.deepcopy(base.config))
    return _configuration(network, config, steps)


def check_targets(model: str, revision: str | None, config: AdapterConfig) -> None:
    """Refuse modules that peft would not adapt, without the weights of the model, which take memory."""
    _configuration(outline(model, revision), config, ADALORA_MIN_STEPS)


def _configuration(network: Any, config: AdapterConfig, steps: int) -> Any:
    """The first configuration of those that mean the same which peft takes for a network without weights."""
    architecture = network.config.model_type
    if config.method == "adalora" and steps < ADALORA_MIN_STEPS:
        raise UsageError(f"adalora must have at least {ADALORA_MIN_STEPS} steps to move its budget; got {steps}")
    reason = ""
    for preference, targets in enumerate(_targets(network, config)):
        # peft has no dropout for experts that are fused into one parameter.
        for dropout in dict.fromkeys((config.dropout, 0.0)):
            settings = _settings(architecture, config, targets, dropout, steps)
            failure = _refusal(network, settings)
            reason = reason or failure
            if failure:
                continue
            if preference:
                adapted = targets if isinstance(targets, str) else ", ".join(targets)
                asked = f"target-modules {config.target_modules} for {config.method} on {architecture}"
                _remark(f"{asked}: peft names none that it can adapt, so that {adapted} are adapted")
            if dropout != config.dropout:
                _remark(f"dropout 0, not {config.dropout}: peft has none for the fused experts of {architecture}")
            return settings
    must = f"target-modules {config.target_modules!r} must suit {config.method} and architecture {architecture!r}"
    raise UsageError(f"{must}; {reason}")


@functools.cache
def _remark(line: str) -> None:
    """Say it once; trials and control models have the same configuration."""
    note(line)


def _settings(architecture: str, config: AdapterConfig, targets: str | list[str], dropout: float, steps: int) -> Any:
    """The peft configuration with these targets."""
    from peft import AdaLoraConfig, IA3Config, LoraConfig
    from peft.utils import constants

    settings: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": targets}
    if config.method == "ia3":
        modules = constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING.get(architecture, [])
        # peft demands that they are among the targets, which are not known by name for all-linear.
        forward = [] if targets == "all-linear" else [name for name in modules if name in targets]
        return IA3Config(**settings, feedforward_modules=forward)
    rank = config.rank
    settings |= {"lora_alpha": config.alpha, "lora_dropout": dropout, "bias": "none"}
    if config.method == "lora":
        return LoraConfig(**settings, r=rank)
    return AdaLoraConfig(
        **settings,
        init_r=math.ceil(ADALORA_START * rank),
        target_r=rank,
        total_step=steps,
        tinit=steps // 10,
        tfinal=steps // 2,
        deltaT=1,
    )


def _refusal(network: Any, settings: Any) -> str:
    """Why peft does not take a configuration for a network without weights; "" if it does."""
    from peft import get_peft_model

    if not settings.target_modules:
        return "there are none"
    # peft writes into both.
    try:
        with quiet_peft():
            get_peft_model(copy.deepcopy(network), copy.deepcopy(settings), low_cpu_mem_usage=True)
    # Its errors have no common type.
    except Exception as error:
        return first_line(error)
    return ""


def _targets(network: Any, config: AdapterConfig) -> Iterator[str | list[str]]:
    """Modules that may get an adapter; first those that are usual, which may be none."""
    from peft.utils import constants

    architecture = network.config.model_type
    linear = _linear(network)
    if config.target_modules == "auto":
        mapping = getattr(constants, f"TRANSFORMERS_MODELS_TO_{config.method.upper()}_TARGET_MODULES_MAPPING")
        yield mapping.get(architecture, [])
        yield sorted(set().union(*linear.values()))
    if config.target_modules in ("auto", "all-linear"):
        special = any(isinstance(module, torch.nn.Linear) and not _is_linear(module) for module in network.modules())
        yield [] if special else "all-linear"
        # Of a state-space model peft refuses some.
        adaptable = []
        for name in sorted(linear):
            if not _refusal(network, _settings(architecture, config, [name], 0.0, ADALORA_MIN_STEPS)):
                adaptable += [name]
        yield adaptable
        return
    targets = [name for name in config.target_modules.split(",") if name]
    missing = [name for name in targets if name not in linear]
    if missing or not targets:
        names = ", ".join(sorted(linear))
        raise UsageError(f"target-modules must be auto, all-linear or of {names}; got {missing}")
    yield targets


def _is_linear(module: Any) -> bool:
    """Whether a module is a linear layer, and none that only inherits from one, such as the router of Llama 4."""
    from transformers.pytorch_utils import Conv1D

    if not isinstance(module, torch.nn.Linear):
        return isinstance(module, Conv1D)
    return isinstance(module(module.weight.new_zeros(1, module.in_features)), torch.Tensor)


def _linear(network: Any) -> dict[str, set[str]]:
    """Name of each linear layer → its names with that of the attention that it is part of, if it is."""
    # Without the output embedding, whose plain weights trl reads.
    head = network.get_output_embeddings()
    linear: dict[str, set[str]] = {}
    for path, module in network.named_modules():
        if not _is_linear(module) or module is head:
            continue
        above, _, name = path.rpartition(".")
        parent = above.rpartition(".")[2]
        projections = linear.setdefault(name, set())
        if "attn" in parent or "attention" in parent:
            projections.add(f"{parent}.{name}")
    return linear


def target_names(language_model: LanguageModel) -> str:
    """Names of the modules and parameters that the attached adapter changes; a pattern as it is."""
    config = language_model.model.active_peft_config
    modules = config.target_modules
    if isinstance(modules, str):
        return modules
    parameters = getattr(config, "target_parameters", None) or ()
    return ", ".join(sorted(set(modules).union(parameters)))


def orthogonal_penalty(model: Any) -> torch.Tensor | float:
    """AdaLoRA's penalty γ · mean of ‖PᵀP − I‖_F (arXiv 2303.10512, eq. 4), which trl drops; 0 for other adapters."""
    config = model.peft_config["default"]
    if not getattr(config, "orth_reg_weight", 0):
        return 0.0
    norms = []
    for name, weight in model.named_parameters():
        if "lora_A" in name:
            gram = weight @ weight.T
        elif "lora_B" in name:
            gram = weight.T @ weight
        else:
            continue
        identity = torch.eye(len(gram), device=gram.device, dtype=gram.dtype)
        norms.append(torch.linalg.matrix_norm(gram - identity))
    penalty: torch.Tensor = config.orth_reg_weight * torch.stack(norms).mean()
    return penalty
