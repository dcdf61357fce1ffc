"""Adapters: configuration for an architecture, saving with the identity of the base, attaching by peft's own network.

An adapter may come from somebody else. Its weights are read by safetensors or torch's restricted unpickler, and its
settings name no further file or model. Whether it leaves its base alone is measured, not read from its settings.
"""

import contextlib
import copy
import functools
import json
import math
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
import xxhash
from pydantic import BaseModel

from fsd.config import AdapterConfig
from fsd.distributed import is_main_process
from fsd.errors import UsageError, first_line, refusing
from fsd.files import CHECKSUMS, SMALL, check_regular, checksum_lines, checksums, digest, read_json
from fsd.leftovers import write_whole
from fsd.models.language_model import BaseIdentity, LanguageModel, has_split_head, outline
from fsd.net.hub import fingerprint, model_size, weights_file
from fsd.progress import note

BASE_FILE = "base.json"
"""File beside the adapter with the identity of its base model; adapters that peft or trl save have none."""
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
WEIGHTS_FILES = (WEIGHTS_FILE, "adapter_model.bin")
"""Names of the weights, the preferred one first, as peft reads them."""
ADALORA_START = 1.5
"""Initial over final rank budget of AdaLoRA (arXiv 2303.10512, §4.1)."""
ADALORA_MIN_STEPS = 5
INITIALISATIONS = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that read and write the adapter alone; pissa, olora and others rewrite the base."""
RESTORABLE: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "init_lora_weights": INITIALISATIONS,
    "layer_replication": (None,),
    "alora_invocation_tokens": (None,),
}
"""Settings of peft that change the base itself, or how it reads → values with which they do not."""
UNREADABLE = {
    "LILY": "lets what follows a token change its probability",
    "MULTITASK_PROMPT_TUNING": "needs a task with each text",
    "POLY": "needs a task with each text",
    "SHADOW": "names a further model",
    "XLORA": "names further adapters",
}
"""Kinds of adapters that give no scores of a text alone, or that a folder does not hold whole → why."""
WHOLE = "a merged or fully fine-tuned model is given by --tuned (fsd adapter-audit) or --model"
"""The way on for an adapter that cannot be read."""


class Settings(BaseModel, extra="allow"):
    """What is read of an adapter's settings before peft reads them all."""

    peft_type: str
    base_model_name_or_path: str | None = None
    revision: str | None = None
    # Code of a package that peft would import by the name that stands here.
    megatron_config: None = None


def attach(language_model: LanguageModel, folder: Path) -> None:
    """Attach a saved adapter, which can be switched off, to the base model that it was trained on.

    A UsageError if the adapter is none, damaged, was trained on another base, or cannot be switched off so that the
    base is bitwise as before; `adapted` gives the fine-tuned model then.
    """
    adapted(language_model, folder)
    if not language_model.adapted:
        raise UsageError(
            f"adapter must leave its base bitwise as it was; {folder} does not: give it as adapter=FOLDER to fsd.score "
            "or fsd.deviation, which load the base twice"
        )


def adapted(language_model: LanguageModel, folder: Path) -> LanguageModel:
    """The fine-tuned model that a saved adapter makes of its base, by peft's own network.

    Where the adapter can be switched off so that the base is bitwise as before, it is attached to `language_model`,
    too (`LanguageModel.adapted`). Else that has none; and if its network was changed, it gives no more numbers.
    """
    _check_precision(language_model, check_adapter(folder))
    check_base(language_model.identity, folder)
    detach(language_model)
    # Peft warns of what is checked here, or meant.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _adapted(language_model, folder, _peft_config(folder))


def _adapted(language_model: LanguageModel, folder: Path, config: Any) -> LanguageModel:
    base = language_model.model
    weights = _places(base)
    x = _ids(language_model, config=config)
    with language_model.state(tuned=False):
        logits = _logits(base, x)
    try:
        network = _loaded(language_model, folder, config)
    # What peft raises for a configuration that makes no sense has no common type.
    except Exception as error:
        strip(language_model)
        language_model.intact = _places(base) == weights
        name = language_model.identity.id
        raise UsageError(
            f"adapter must fit its base {name!r}; {folder} does not: {shorten(str(error) or repr(error), 300)}; {WHOLE}"
        ) from error
    tuned = as_it_is(replace(language_model, model=network))
    with torch.inference_mode(), network.disable_adapter():
        restored = _places(base) == weights and torch.equal(_logits(network.get_base_model(), x), logits)
    # With trained biases, peft itself does not promise it.
    if restored and tuned.model is network.get_base_model() and getattr(config, "bias", "none") == "none":
        language_model.model = network
    # Learned prompts stand before a network that has nothing of them.
    elif not (restored and network.base_model is base):
        language_model.intact = False
    return tuned


def as_it_is(language_model: LanguageModel) -> LanguageModel:
    """The network with the attached adapter as part of it, in place of the base."""
    network = language_model.model
    identity = language_model.identity
    # Under the fingerprint of the base its numbers would be cached as those of the base.
    both = identity.fingerprint and identity.fingerprint + adapter_fingerprint(language_model)
    tuned = replace(
        language_model, model=network.get_base_model(), identity=replace(identity, fingerprint=both), intact=True
    )
    config = network.active_peft_config
    x = _ids(language_model, config=config)
    with torch.inference_mode():
        by_peft = _logits(network, x)
        alike = torch.equal(by_peft, _logits(tuned.model, x))
    if alike:
        tuned.split_head = has_split_head(tuned)
        return tuned
    tuned.model = Adapted(network)
    tuned.split_head = False
    tuned.context -= getattr(config, "num_virtual_tokens", 0)
    return tuned


class Adapted(torch.nn.Module):
    """A network whose adapter works in peft's own pass alone, such as learned prompts before what is read."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        """What the network answers, without the logits of learned prompts."""
        answer = self.network(input_ids=input_ids, **options)
        answer.logits = answer.logits[:, -input_ids.shape[1] :]
        return answer

    def generate(self, ids: torch.Tensor, **options: Any) -> Any:
        """The ids with those that follow."""
        return self.network.generate(input_ids=ids, **options)

    @property
    def generation_config(self) -> Any:
        """How peft's network generates."""
        return self.network.generation_config

    @generation_config.setter
    def generation_config(self, config: Any) -> None:
        self.network.generation_config = config

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.network.get_base_model(), name)


def _ids(language_model: LanguageModel, text: str = "The quick brown fox jumps over it.", config: Any = None) -> Any:
    """(1, n) ids of a text, after those by which an activated LoRA is switched on, if it has any."""
    (ids,) = language_model.tokens([text])
    switch = getattr(config, "alora_invocation_tokens", None) or []
    window = [language_model.start, *switch, *ids][: language_model.context]
    return torch.tensor([window], device=language_model.device)


def _logits(network: Any, x: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = network(input_ids=x, use_cache=False).logits
    return logits


def _places(network: Any) -> list[tuple[int, int]]:
    """Where each weight of a base lies, and how often it was written; both change if an adapter changes the weight."""
    return [(weight.data_ptr(), weight._version) for weight in base_weights(network)]


def _loaded(language_model: LanguageModel, folder: Path, config: Any) -> Any:
    """Peft's network around the base, with all weights that an adapter's file holds."""
    from peft import PeftModelForCausalLM

    class Told(PeftModelForCausalLM):  # type: ignore[misc] # peft is not typed
        """Keeps which weights were not used, of which peft does not tell."""

        def load_adapter(self, *arguments: Any, **options: Any) -> Any:
            """As peft's, whose answer is kept."""
            self.loading = super().load_adapter(*arguments, **options)
            return self.loading

    task = config.task_type
    # With a task, peft would choose the class by it.
    config.task_type = None
    # Weights that are missing would stay as they were drawn by chance.
    warnings.filterwarnings("error", message="Found missing adapter keys")
    device = str(language_model.device)
    network = Told.from_pretrained(language_model.model, str(folder), config=config, torch_device=device)
    config.task_type = task
    left_out = network.loading.unexpected_keys
    # Learned prompts are not weights of a module.
    if left_out and not config.is_prompt_learning:
        raise ValueError(f"the base has no place for {len(left_out)} of its weights, such as {left_out[0]}")
    return network.eval()


def base_weights(network: Any) -> list[torch.nn.Parameter]:
    """The weights of a base, each once, without those of an adapter in it."""
    weights: dict[torch.nn.Parameter, None] = {}

    def add(module: Any) -> None:
        module = _of_base(module)
        weights.update(dict.fromkeys(module.parameters(recurse=False)))
        for child in module.children():
            add(child)

    # Without what peft learned beside the network.
    if isinstance(network, Adapted):
        network = network.network.get_base_model()
    add(network)
    return list(weights)


def _of_base(module: Any) -> Any:
    """The module of the base in whose place peft has put one of its own; any other is itself."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    if isinstance(module, AuxiliaryTrainingWrapper):
        module = module.original_module
    if isinstance(module, BaseTunerLayer):
        module = module.get_base_layer()
    return module


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
    base = language_model.model

    def restore(parent: Any) -> None:
        for name, module in list(parent.named_children()):
            # Fused experts have one within the other, whose base is that of both.
            original = _of_base(module)
            if original is not module:
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
                    f"the model's adapter must leave its base as it was, which is scored too; {name} is {value!r}: "
                    "name the base, and give the saved adapter as adapter=FOLDER"
                )


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence warnings of peft that are wrong or that users cannot act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*fan_in_fan_out")
        # peft looks for the patterns of AdaLoRA and of fused experts under other names; the outputs are right.
        warnings.filterwarnings("ignore", message=".*(rank|alpha)_pattern")
        # Learned prompts have no positions; what is generated after them is right.
        warnings.filterwarnings("ignore", message="Position ids are not supported")
        yield


def _check_precision(language_model: LanguageModel, method: str) -> None:
    """On quantized weights, methods other than lora pass float32 on to layers of another dtype."""
    if language_model.bits and language_model.dtype != "float32" and method != "lora":
        raise UsageError(
            f"{method} on {language_model.bits}-bit weights must be computed in float32; got dtype "
            f"{language_model.dtype}: take lora or dtype float32"
        )


def check_adapter(folder: Path) -> str:
    """Kind of a saved adapter, if peft can read it and it is whole, by its checksums if any."""
    kind = _settings(folder).peft_type
    file = _weights_file(folder)
    expected = checksums(folder)
    # Adapters of other programs have no checksums.
    if expected is not None:
        for name in (CONFIG_FILE, file.name, BASE_FILE):
            if not (folder / name).exists() or expected.get(name) != digest(folder / name):
                raise UsageError(
                    f"adapter must be as it was saved; {folder / name} differs from its checksum in {CHECKSUMS}"
                )
    _check_weights(file)
    _trained_on(folder)
    return kind.lower()


def _settings(folder: Path) -> Settings:
    """The settings of an adapter of a kind that can be read."""
    from peft import PeftType

    file = folder / CONFIG_FILE
    if not file.exists():
        raise UsageError(f"adapter must be a folder with {CONFIG_FILE}; {folder} has none: {WHOLE}")
    settings = read_json(Settings, file, "an adapter's configuration", largest=SMALL)
    kind = settings.peft_type
    reason = UNREADABLE.get(kind)
    if kind not in list(PeftType):
        reason = "is not known to this version of peft"
    if reason:
        raise UsageError(f"adapter must be of a kind that gives scores of texts; {kind} {reason}: {WHOLE}")
    return settings


def _peft_config(folder: Path) -> Any:
    """Peft's configuration of a saved adapter, to be read alone, by whichever version of peft it was written."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING

    settings = _settings(folder).model_dump(exclude_unset=True)
    kind = PEFT_TYPE_TO_CONFIG_MAPPING[settings["peft_type"]]
    defaults = {field.name: field.default for field in fields(kind) if field.init}
    taken = {}
    for name, value in settings.items():
        if name in defaults:
            taken[name] = value
        # What is empty does nothing, whatever it means.
        elif value:
            note(f"adapter: this version of peft does not know its setting {name}, which is left out")
        # Some programs write all numbers as floats.
        if isinstance(value, float) and value.is_integer() and type(defaults.get(name)) is int:
            taken[name] = int(value)
    # Steps of a training that is over, which peft wants to know all the same.
    if "total_step" in taken:
        taken["total_step"] = taken["total_step"] or 1 + taken.get("tinit", 0) + taken.get("tfinal", 0)
    return kind.from_peft_type(**kind.check_kwargs(**taken | {"inference_mode": True}))


def _weights_file(folder: Path) -> Path:
    for name in WEIGHTS_FILES:
        if (folder / name).exists():
            return folder / name
    raise UsageError(f"adapter must hold its weights as {' or '.join(WEIGHTS_FILES)}; {folder} does not: {WHOLE}")


def _check_weights(file: Path) -> None:
    """Refuse weights that would make every score infinite or no number."""
    from peft.utils import load_peft_weights

    check_regular(file, f"adapter must hold its weights as files; {file} cannot be read")
    # Of the restricted unpickler and of safetensors, which have no common type.
    with refusing(f"adapter must hold its weights as a whole file of tensors; {file} is damaged, or holds more: "):
        weights = load_peft_weights(str(file.parent), device="cpu")
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise UsageError(f"adapter must have finite weights; {file} has others: {name}")


def _trained_on(folder: Path) -> BaseIdentity | None:
    """The base of an adapter, where its hash is recorded."""
    file = folder / BASE_FILE
    if not file.exists():
        return None
    return read_json(BaseIdentity, file, "the identity of a base", largest=SMALL)


def check_unloaded(folder: Path, model: str, revision: str | None = None) -> None:
    """Refuse a saved adapter that is damaged, or that was trained on another base, without loading the base.

    Of one that does not record the hash of its base, a line says what is taken on the user's word.
    """
    if model.startswith("api:"):
        raise UsageError(f"adapter must come with a base model on this machine; {model} is behind an API")
    check_adapter(folder)
    line = on_your_word(folder, model, revision)
    if line and is_main_process():
        note(line)
    base = model_size(model, revision)
    # A single file is converted, and a hub id downloaded, before its weights have a fingerprint.
    if base and not weights_file(model):
        check_base(BaseIdentity(model, "", fingerprint(base.folder)), folder)


def on_your_word(folder: Path, model: str, revision: str | None = None) -> str:
    """What nobody can check of an adapter's base, as peft and trl record no hash of its weights; "" if nothing."""
    if _trained_on(folder):
        return ""
    settings = _settings(folder)
    named = settings.base_model_name_or_path or "a base that it does not name"
    if named == model and settings.revision in (None, revision):
        return (
            f"that the base is {model} is taken on your word: the adapter records its name, and no hash of its weights"
        )
    if settings.revision:
        named += f" at {settings.revision}"
    return f"the adapter was trained on {named}; that {model} has the same weights is taken on your word"


def check_base(identity: BaseIdentity, folder: Path) -> None:
    """Refuse a saved adapter that records another base than `identity`."""
    trained = _trained_on(folder)
    if trained and trained.fingerprint != identity.fingerprint:
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
    _complete(folder, identity)


def copy_adapter(adapter: Path, identity: BaseIdentity, folder: Path) -> None:
    """Copy what makes a saved adapter, with checksums and the identity of the base that it was used on."""
    for name in (CONFIG_FILE, _weights_file(adapter).name):
        shutil.copyfile(adapter / name, folder / name)
    _complete(folder, identity)


def _complete(folder: Path, identity: BaseIdentity) -> None:
    base = (json.dumps(asdict(identity), indent=2) + "\n").encode()
    contents = {file.name: file.read_bytes() for file in (folder / CONFIG_FILE, _weights_file(folder))}
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
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(_bytes(weight))
    return digest.hexdigest()


def has_effect(language_model: LanguageModel, text: str) -> bool:
    """Whether the attached adapter changes any logit of a text: a new one of LoRA, whose B is zero, does not."""
    x = _ids(language_model, text)
    with language_model.state(tuned=False) as network:
        logits = _logits(network, x)
    with language_model.state(tuned=True) as network:
        return not torch.equal(logits, _logits(network, x))


def _as_json(value: object) -> object:
    # The order of a set of names differs from process to process.
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


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
        raise UsageError(
            f"adalora must have at least {ADALORA_MIN_STEPS} steps to move its budget; got {steps}: take more epochs "
            "or a smaller batch-size"
        )
    reason = ""
    for preference, targets in enumerate(_targets(network, config)):
        # peft has no dropout for experts that are fused into one parameter.
        for dropout in dict.fromkeys((config.dropout, 0.0)):
            settings = _new_settings(architecture, config, targets, dropout, steps)
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


def _new_settings(
    architecture: str, config: AdapterConfig, targets: str | list[str], dropout: float, steps: int
) -> Any:
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
            if not _refusal(network, _new_settings(architecture, config, [name], 0.0, ADALORA_MIN_STEPS)):
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
