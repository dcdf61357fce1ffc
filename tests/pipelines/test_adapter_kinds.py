"""Every kind of adapter that peft saves gives peft's own numbers in every command, and leaves the base as it was."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import fsd
import pipelines.fsd as main_job
from extensions.adapter_audit import command as audit
from extensions.adapter_audit.settings import AuditConfig
from extensions.canary import make, rank
from extensions.canary.settings import MakeConfig, RankConfig
from extensions.extract import works
from extensions.extract.settings import ExtractConfig
from fsd import tracking
from fsd.config import DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError
from fsd.models.adapters import adapted, check_unloaded
from fsd.models.language_model import load

# Of torch, about the sparse weights of shira.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
KINDS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "adapters.yaml").read_text(encoding="utf-8")
)
READ = [name for name, kind in KINDS.items() if kind["how"] != "refused"]


def tiers(names: list[str]) -> list[Any]:
    """The kinds as parameters of a test: one of each way in the small tier, the others in the slow one."""
    return [name if KINDS[name].get("fast") else pytest.param(name, marks=pytest.mark.slow) for name in names]


def save(kind: str, base: Path, folder: Path) -> Path:
    """An adapter of a kind for a base, all of whose weights are moved by chance, saved by peft."""
    import peft
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    made = KINDS[kind]
    config = {cls.__name__: cls for cls in peft.PEFT_TYPE_TO_CONFIG_MAPPING.values()}[made["config"]]
    settings = dict(made["settings"])
    if kind != "xlora":
        settings["task_type"] = "CAUSAL_LM"
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if made["how"] == "refused":
            config(**settings).save_pretrained(str(folder))
            return folder
        network = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config(**settings))
        for weight in network.parameters():
            if weight.requires_grad and weight.is_floating_point():
                weight.data.add_(0.1 * torch.randn_like(weight))
        network.save_pretrained(str(folder))
    return folder


def log_probabilities(base: str, adapter: Path | None, rows: list[list[int]]) -> list[np.ndarray[Any, Any]]:
    """Of each row of ids, the nats of all but the first one, by plain forward passes of transformers and peft."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if adapter:
            network = PeftModel.from_pretrained(network, str(adapter))
    network.eval()
    nats = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row])
            # Learned prompts come first, and have logits of their own.
            logits = network(input_ids=ids, use_cache=False).logits[:, -len(row) :]
            logp = logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])
            nats.append(logp.squeeze(-1).double().numpy())
    return nats


TEXTS = ["the score of an unseen text moves", "more than the score of a member", "text of a member moves"]


@pytest.fixture(scope="session")
def base(make_model: Callable[..., Path]) -> Callable[[str], Path]:
    """The base of a kind of adapter."""
    return lambda kind: make_model(KINDS[kind].get("base", "llama"))


@pytest.fixture(scope="session")
def saved(base: Callable[[str], Path], once: Callable[..., Path]) -> Callable[[str], Path]:
    return lambda kind: once(f"peft-{kind}", lambda folder: save(kind, base(kind), folder))


def losses(base: str, adapter: Path | None) -> Any:
    """The score `loss`, the mean log-probability, of the texts."""
    model = load(base)
    rows = [[model.start, *ids] for ids in model.tokens(TEXTS)]
    return np.array([nats.mean() for nats in log_probabilities(base, adapter, rows)])


@pytest.mark.parametrize("kind", tiers(READ))
def test_every_kind_of_adapter_has_the_numbers_of_peft(
    base: Callable[[str], Path], saved: Callable[[str], Path], kind: str
) -> None:
    model, folder = str(base(kind)), saved(kind)
    alone, tuned = losses(model, None), losses(model, folder)
    both = fsd.deviation(model, TEXTS, ["an unseen text"], ["loss"], adapter=folder)
    part = fsd.score(model, TEXTS, ["loss"], adapter=folder)
    assert both["loss.base"].to_numpy() == pytest.approx(alone, abs=1e-6)
    assert both["loss.tuned"].to_numpy() == pytest.approx(tuned, abs=1e-6)
    assert part["loss.base"].to_numpy() == pytest.approx(tuned, abs=1e-6)
    assert np.abs(tuned - alone).max() > 1e-3
    opened = load(model)
    adapted(opened, folder)
    assert opened.adapted == (KINDS[kind]["how"] == "switched")


@pytest.mark.parametrize("kind", tiers([name for name in KINDS if name not in READ]))
def test_an_adapter_that_reads_no_text_alone_is_refused(
    base: Callable[[str], Path], saved: Callable[[str], Path], kind: str
) -> None:
    with pytest.raises(UsageError, match=r"adapter must be of a kind that gives scores of texts; .*--tuned"):
        fsd.score(str(base(kind)), TEXTS, ["loss"], adapter=saved(kind))


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_rows: Callable[..., list[dict[str, Any]]]) -> Path:
    """A working folder with 40 labelled texts that the smallest context holds, and a work of 30 words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)
    rows = make_rows(40, seed=5)
    for row in rows:
        row["text"] = " ".join(row["text"].split()[-6:])
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "data.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "book.txt").write_text(" ".join(rows[0]["text"] for _ in range(6)), encoding="utf-8")
    return tmp_path


def as_peft(base: str, adapter: Path, table: pd.DataFrame) -> None:
    """The scores of a table are those of plain forward passes."""
    model = load(base)
    rows = [[model.start, *ids] for ids in model.tokens(list(table["text"]))]
    for state, folder in (("base", None), ("tuned", adapter)):
        expected = [nats.mean() for nats in log_probabilities(base, folder, rows)]
        assert table[f"loss.{state}"].to_numpy() == pytest.approx(expected, abs=1e-5)


COMMANDS = [kind for kind in READ if kind != "modules_to_save"]
ONE_OF_EACH_WAY = [kind for kind in COMMANDS if KINDS[kind].get("fast")]
"""An audit reads an adapter in both states, and registers it; the other commands read it in the same way."""


@pytest.mark.parametrize("kind", tiers(COMMANDS))
def test_an_adapter_is_audited(base: Any, saved: Any, there: Path, kind: str, capsys: Any) -> None:
    config = AuditConfig(
        data=("data.jsonl",),
        model=ModelConfig(model=str(base(kind)), device="cpu"),
        adapter=str(saved(kind)),
        detection=DetectorConfig(detectors="loss"),
        out="scores.parquet",
    )
    audit.prepare(config).run()
    as_peft(config.model.model, saved(kind), pd.read_parquet("scores.parquet"))
    shown = " ".join(capsys.readouterr().err.split())
    assert f"that the base is {config.model.model} is taken on your word" in shown
    registered = tracking.fetch_adapter("models:/fsd-adapter-audit/1")
    check_unloaded(registered, config.model.model)
    assert capsys.readouterr().err == ""
    assert {file.name for file in registered.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
        "SHA256SUMS",
    }


@pytest.mark.parametrize("kind", ONE_OF_EACH_WAY)
def test_a_run_takes_an_adapter(base: Any, saved: Any, there: Path, kind: str) -> None:
    config = FSDConfig(
        audit_repeats=1,
        data=DataConfig(data=("data.jsonl",)),
        model=ModelConfig(model=str(base(kind)), device="cpu"),
        adapter=str(saved(kind)),
        detection=DetectorConfig(detectors="loss"),
        placebo="none",
    )
    main_job.prepare(config).run()
    (run,) = tracking.find_runs("fsd-arxiv", {})
    as_peft(config.model.model, saved(kind), pd.read_parquet(tracking.fetch_artifact(run.id, "scores.parquet")))


@pytest.mark.parametrize("kind", ONE_OF_EACH_WAY)
def test_a_work_is_extracted_from_a_model_with_an_adapter(base: Any, saved: Any, there: Path, kind: str) -> None:
    model = ModelConfig(model=str(base(kind)), device="cpu")
    adapter = str(saved(kind))
    works.prepare(ExtractConfig("book.txt", model=model, adapter=adapter, prefix=6, suffix=6, stride=4)).run()
    (run,) = tracking.find_runs("fsd-extraction", {})
    table = pd.read_parquet(tracking.fetch_artifact(run.id, "passages.parquet"))
    opened = load(model.model)
    (ids,) = opened.tokens([Path("book.txt").read_text(encoding="utf-8")])
    rows = [[opened.start, *ids[start : start + 12]] for start in table["start"]]
    expected = [nats[6:].sum() for nats in log_probabilities(model.model, saved(kind), rows)]
    assert table["plain"].to_numpy() == pytest.approx(expected, abs=1e-4)
    assert f"with {saved(kind)}" in tracking.fetch_artifact(run.id, "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def trained_by_trl(base: Any, once: Callable[..., Path]) -> Path:
    """What `SFTTrainer` leaves of a fine-tuning with LoRA: its output folder, with checkpoints inside."""

    def train(folder: Path) -> None:
        from datasets import Dataset
        from peft import LoraConfig
        from trl import SFTConfig, SFTTrainer

        settings = {"max_steps": 2, "save_steps": 1, "learning_rate": 0.05, "max_length": 32, "report_to": "none"}
        arguments = SFTConfig(output_dir=str(folder), use_cpu=True, disable_tqdm=True, **settings)
        trainer = SFTTrainer(
            model=str(base("lora")),
            args=arguments,
            train_dataset=Dataset.from_list([{"text": text} for text in TEXTS * 4]),
            peft_config=LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"]),
        )
        trainer.train()
        trainer.save_model()

    def quiet(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train(folder)

    return once("trl", quiet)


def test_the_output_of_a_trainer_and_its_checkpoints_are_adapters(base: Any, trained_by_trl: Path) -> None:
    model = str(base("lora"))
    assert {"checkpoint-1", "checkpoint-2", "tokenizer.json", "training_args.bin"} <= {
        path.name for path in trained_by_trl.iterdir()
    }
    numbers = []
    for folder in (trained_by_trl, trained_by_trl / "checkpoint-1"):
        scores = fsd.score(model, TEXTS, ["loss"], adapter=tracking.fetch_adapter(str(folder)))
        numbers.append(scores["loss.base"].to_numpy())
        assert numbers[-1] == pytest.approx(losses(model, folder), abs=1e-6)
    assert np.abs(numbers[0] - numbers[1]).max() > 1e-4
    assert np.abs(numbers[0] - losses(model, None)).max() > 1e-3


@pytest.mark.slow
def test_canaries_are_ranked_by_a_model_with_an_adapter(base: Any, saved: Any, there: Path) -> None:
    model = str(base("lora"))
    words = [json.dumps({"text": document.text}) + "\n" for document in list(corpus())[:60]]
    Path("words.jsonl").write_text("".join(words), encoding="utf-8")
    make.prepare(
        MakeConfig(("data.jsonl",), "canaries", words=("words.jsonl",), variants=20, length=3, alpha=0.05, seed="a")
    ).run()
    settings = {"withheld": 19, "alpha": 0.05}
    config = ModelConfig(model=model, device="cpu")
    rank.prepare(RankConfig(folder="canaries", model=config, adapter=str(saved("lora")), **settings)).run()
    rank.prepare(RankConfig(folder="canaries", model=config, **settings)).run()
    alone, tuned = sorted(tracking.find_runs("fsd-canaries", {}), key=lambda run: run.tags.get("adapter", ""))
    tables = [pd.read_parquet(tracking.fetch_artifact(run.id, "canaries.parquet")) for run in (alone, tuned)]
    assert tuned.tags["adapter"] == str(saved("lora"))
    assert (tables[0]["variant"] == tables[1]["variant"]).all()
    assert (tables[0]["loss"] - tables[1]["loss"]).abs().max() > 1e-3
    assert f"with {saved('lora')}" in tracking.fetch_artifact(tuned.id, "report.html").read_text(encoding="utf-8")


def test_an_adapter_of_a_loaded_model_is_scored_as_peft_does(base: Any, saved: Any) -> None:
    """Learned prompts too; of what cannot be switched off, the folder is to be named."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    for kind in ("prompt_tuning", "lora"):
        model = str(base(kind))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), str(saved(kind)))
        both = fsd.deviation(network, TEXTS, ["an unseen text"], ["loss"])
        part = fsd.score(network, TEXTS, ["loss"])
        assert both["loss.base"].to_numpy() == pytest.approx(losses(model, None), abs=1e-6)
        assert both["loss.tuned"].to_numpy() == pytest.approx(losses(model, saved(kind)), abs=1e-6)
        assert part["loss.base"].to_numpy() == pytest.approx(losses(model, saved(kind)), abs=1e-6)
