import json
from datetime import date

import pytest

from fsd.data import benchmarks, embedded
from fsd.data.documents import Document
from fsd.data.knowledge_cutoffs import cutoff, cutoffs, labels_for
from fsd.errors import UsageError


def test_known_models_and_those_that_only_look_like_them():
    for model, day in {
        "huggyllama/llama-7b": "2023-02-24",
        "EleutherAI/pythia-6.9b": "2020-12-31",
        "EleutherAI/pythia-160m-deduped": "2020-12-31",
        "EleutherAI/gpt-j-6B": "2020-12-31",
        "facebook/opt-6.7b": "2022-05-03",
        "allenai/OLMo-7B": "2024-02-01",
        "allenai/OLMo-7B-0724-hf": "2024-07-31",
        "Qwen/Qwen1.5-14B-Chat": "2024-02-29",
        "baichuan-inc/Baichuan2-7B-Chat": "2023-09-30",
        "meta-llama/Llama-2-7b-chat-hf": "2023-07-18",
        "meta-llama/Llama-3.1-8B-Instruct": "2024-07-23",
        "HuggingFaceTB/SmolLM2-135M-Instruct": "2024-11-30",
        "embedded": str(embedded.CUTOFF),
    }.items():
        assert str(cutoff(model).day) == day
        assert sum(entry.names(model) for entry in cutoffs()) == 1
    for model in ("allenai/OLMo-7B-0999", "Qwen/Qwen1.5-MoE-A2.7B", "someone/llama-7b", "huggyllama/llama-7b-v9", ""):
        with pytest.raises(UsageError, match="must be given by --after DATE; known are LLaMA, Llama 2, "):
            cutoff(model)
    assert all(date(2016, 1, 1) < entry.day <= date.today() and len(entry.source) > 20 for entry in cutoffs())


def texts(*days, period=""):
    """A member, and non-members of some days (None for one without a date)."""
    others = [Document(f"text {day}", False, day and date.fromisoformat(day), period=period) for day in days]
    return [Document("member", True, period="old"), *others]


WIKIMIA = benchmarks.sources()["wikimia"].later
SMOL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("model", "documents", "given", "doubt"),
    [
        (SMOL, texts(None), {"since": WIKIMIA}, "up to 2024-11-30, and the non-members begin on 2023-01-01"),
        (f"api:{SMOL}", texts("2024-11-30", "2025-01-01"), {}, "1 of 2 dated non-members are not later"),
        (SMOL, texts("2025-03-01"), {}, ""),
        (SMOL, texts("2023-03-01", period="old"), {}, ""),  # contemporaries
        ("huggyllama/llama-7b", texts(None), {"since": WIKIMIA}, ""),  # released in 2023, with data up to 2022
        ("someone/new", texts("2023-03-01"), {}, "the age of someone/new is not known: labels hold only if its data"),
        ("someone/new", texts("2023-03-01"), {"last": date(2022, 1, 1)}, ""),
        ("someone/new", texts(None), {}, ""),
        ("embedded", texts("2010-01-01"), {}, ""),
    ],
)
def test_labels_hold_for_models_that_are_older_than_the_non_members(model, documents, given, doubt):
    found = labels_for(model, documents, **given)
    assert doubt in found.doubt
    assert bool(doubt) == bool(found.doubt)
    assert found.hold == ("may have read" not in doubt and "dated non-members" not in doubt and "begin on" not in doubt)


def test_a_folder_is_known_by_the_name_in_its_configuration(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"_name_or_path": SMOL}))
    assert not labels_for(str(tmp_path), texts("2023-03-01")).hold
    (tmp_path / "config.json").write_text("{}")
    assert "is not known" in labels_for(str(tmp_path), texts("2023-03-01")).doubt
