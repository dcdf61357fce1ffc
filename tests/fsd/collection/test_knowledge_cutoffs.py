from datetime import date

import pytest

from fsd.collection.knowledge_cutoffs import cutoff, cutoffs
from fsd.data import embedded
from fsd.errors import UsageError

KNOWN = {
    "huggyllama/llama-7b": date(2023, 2, 24),
    "EleutherAI/pythia-6.9b": date(2020, 12, 31),
    "EleutherAI/pythia-160m-deduped": date(2020, 12, 31),
    "EleutherAI/gpt-j-6B": date(2020, 12, 31),
    "facebook/opt-6.7b": date(2022, 5, 3),
    "allenai/OLMo-7B": date(2024, 2, 1),
    "allenai/OLMo-7B-0724-hf": date(2024, 7, 31),
    "Qwen/Qwen1.5-14B-Chat": date(2024, 2, 29),
    "baichuan-inc/Baichuan2-7B-Chat": date(2023, 9, 30),
    "meta-llama/Llama-2-7b-chat-hf": date(2023, 7, 18),
    "meta-llama/Llama-3.1-8B-Instruct": date(2024, 7, 23),
    "HuggingFaceTB/SmolLM2-135M-Instruct": date(2024, 11, 30),
    "embedded": embedded.CUTOFF,
}


def test_known_models():
    assert {model: cutoff(model).day for model in KNOWN} == KNOWN
    assert all(sum(entry.names(model) for entry in cutoffs()) == 1 for model in KNOWN)


def test_models_that_only_look_like_known_ones_have_no_cutoff():
    for model in ("allenai/OLMo-7B-0999", "Qwen/Qwen1.5-MoE-A2.7B", "someone/llama-7b", "huggyllama/llama-7b-v9", ""):
        with pytest.raises(UsageError, match="must be given by --after DATE; known are LLaMA, Llama 2, "):
            cutoff(model)


def test_every_fact_is_in_the_past_and_has_a_source():
    for entry in cutoffs():
        assert date(2016, 1, 1) < entry.day <= date.today()
        assert len(entry.source) > 20
