from datetime import date

import pytest

from fsd.collection.knowledge_cutoffs import cutoff, cutoffs
from fsd.data import embedded
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
