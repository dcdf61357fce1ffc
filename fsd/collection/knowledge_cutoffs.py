"""Days after which no text can be in a model's pretraining data: a small table of facts, each with its source.

The day is that of the release of the model, or of its training data where that was released as a fixed set before.
Training ended earlier than the release, so the day is safe; where only the month of a release is certain, it is the
last of that month. A model that is not listed has no entry rather than a guess, also if its name begins like a
listed one: later variants saw later texts.
"""

import re
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents

from fsd.data import embedded
from fsd.errors import UsageError

PILE = "release of the Pile, on which it was trained (arXiv 2101.00027)"
CHAT = "(-(chat|instruct|it|hf|base))*"
SIZE = r"\d+(\.\d+)?[bm]"


@dataclass(frozen=True)
class Cutoff:
    """A fact of the table.

    Attributes:
        family: name of the models.
        pattern: what their whole hub id matches, in any case.
        day: texts first published after it cannot have been in the data.
        source: what happened on that day, and where it is said.
    """

    family: str
    pattern: str
    day: Date
    source: str


CUTOFFS = (
    Cutoff(
        "LLaMA",
        rf"(huggyllama|decapoda-research)/llama-{SIZE}(-hf)?",
        Date(2023, 2, 24),
        "release (Meta, 24 Feb 2023; arXiv 2302.13971)",
    ),
    Cutoff(
        "Llama 2",
        rf"meta-llama/llama-2-{SIZE}{CHAT}",
        Date(2023, 7, 18),
        "release (model card; pretraining data end in Sep 2022)",
    ),
    Cutoff(
        "Llama 3",
        rf"meta-llama/meta-llama-3-{SIZE}{CHAT}",
        Date(2024, 4, 18),
        "release (model card; data end in Mar and Dec 2023)",
    ),
    Cutoff(
        "Llama 3.1",
        rf"meta-llama/(meta-)?llama-3\.1-{SIZE}{CHAT}",
        Date(2024, 7, 23),
        "release (model card; data end in Dec 2023)",
    ),
    Cutoff(
        "Llama 3.2",
        rf"meta-llama/llama-3\.2-{SIZE}{CHAT}",
        Date(2024, 9, 25),
        "release (model card; data end in Dec 2023)",
    ),
    Cutoff(
        "Llama 3.3",
        rf"meta-llama/llama-3\.3-70b{CHAT}",
        Date(2024, 12, 6),
        "release (model card; data end in Dec 2023)",
    ),
    Cutoff(
        "Llama 4",
        r"meta-llama/llama-4-(scout|maverick)-.*",
        Date(2025, 4, 5),
        "release (model card; data end in Aug 2024)",
    ),
    Cutoff("Pythia", rf"eleutherai/pythia-{SIZE}(-deduped)?(-v0)?", Date(2020, 12, 31), PILE),
    Cutoff("GPT-Neo", rf"eleutherai/gpt-neo-{SIZE}", Date(2020, 12, 31), PILE),
    Cutoff("GPT-J", r"eleutherai/gpt-j-6b", Date(2020, 12, 31), PILE),
    Cutoff("GPT-NeoX", r"eleutherai/gpt-neox-20b", Date(2020, 12, 31), PILE),
    Cutoff("OPT", rf"facebook/opt-{SIZE}", Date(2022, 5, 3), "release (Meta, 3 May 2022; arXiv 2205.01068)"),
    Cutoff(
        "OLMo",
        r"allenai/olmo-(1b|7b|7b-twin-2t)(-hf)?",
        Date(2024, 2, 1),
        "release (Ai2, 1 Feb 2024; trained on Dolma, arXiv 2402.00159)",
    ),
    Cutoff(
        "OLMo 0424", r"allenai/olmo-(7b-0424|1\.7-7b)(-hf)?", Date(2024, 4, 30), "release in April 2024 (model card)"
    ),
    Cutoff("OLMo 0724", r"allenai/olmo-[17]b-0724(-hf)?", Date(2024, 7, 31), "release in July 2024 (model card)"),
    Cutoff("OLMo 2", r"allenai/olmo-2-1124-(7b|13b)", Date(2024, 11, 30), "release in November 2024 (model card)"),
    Cutoff(
        "Qwen1.5",
        rf"qwen/qwen1\.5-(0\.5b|1\.8b|4b|7b|14b|72b){CHAT}",
        Date(2024, 2, 29),
        "release in February 2024 (Qwen blog, Introducing Qwen1.5)",
    ),
    Cutoff("Qwen1.5", rf"qwen/qwen1\.5-(32b|110b){CHAT}", Date(2024, 4, 30), "release in April 2024 (Qwen blog)"),
    Cutoff(
        "Qwen2",
        rf"qwen/qwen2-(0\.5b|1\.5b|7b|72b){CHAT}",
        Date(2024, 6, 30),
        "release in June 2024 (Qwen blog, Hello Qwen2)",
    ),
    Cutoff(
        "Qwen2.5",
        rf"qwen/qwen2\.5-(0\.5b|1\.5b|3b|7b|14b|32b|72b){CHAT}",
        Date(2024, 9, 30),
        "release in September 2024 (Qwen blog)",
    ),
    Cutoff(
        "Qwen3",
        rf"qwen/qwen3-(0\.6b|1\.7b|4b|8b|14b|32b){CHAT}",
        Date(2025, 4, 30),
        "release in April 2025 (Qwen blog; arXiv 2505.09388)",
    ),
    Cutoff("Baichuan", r"baichuan-inc/baichuan-7b", Date(2023, 6, 30), "release in June 2023 (model card)"),
    Cutoff("Baichuan", rf"baichuan-inc/baichuan-13b{CHAT}", Date(2023, 7, 31), "release in July 2023 (model card)"),
    Cutoff(
        "Baichuan 2",
        rf"baichuan-inc/baichuan2-(7b|13b){CHAT}",
        Date(2023, 9, 30),
        "release in September 2023 (arXiv 2309.10305)",
    ),
    Cutoff(
        "GPT-2",
        r"(openai-community/)?gpt2(-medium|-large|-xl)?",
        Date(2019, 2, 28),
        "paper of February 2019 on WebText, whose links end in Dec 2017",
    ),
    Cutoff("BLOOM", rf"bigscience/bloom(-{SIZE})?", Date(2022, 7, 31), "release in July 2022 (BigScience)"),
    Cutoff("MPT", r"mosaicml/mpt-7b", Date(2023, 5, 31), "release in May 2023 (MosaicML blog)"),
    Cutoff("Mistral", r"mistralai/mistral-7b-v0\.1", Date(2023, 9, 30), "release in September 2023 (Mistral AI)"),
    Cutoff(
        "Mixtral",
        r"mistralai/mixtral-8x7b(-instruct)?-v0\.1",
        Date(2023, 12, 31),
        "release in December 2023 (Mistral AI)",
    ),
    Cutoff(
        "Gemma",
        rf"google/gemma-(2b|7b){CHAT}",
        Date(2024, 2, 29),
        "release in February 2024 (Google; arXiv 2403.08295)",
    ),
    Cutoff(
        "Gemma 2",
        rf"google/gemma-2-(2b|9b|27b){CHAT}",
        Date(2024, 7, 31),
        "releases of June and July 2024 (Google; arXiv 2408.00118)",
    ),
    Cutoff(
        "Gemma 3",
        r"google/gemma-3-(1b|4b|12b|27b)-(pt|it)",
        Date(2025, 3, 31),
        "release in March 2025 (Google; arXiv 2503.19786)",
    ),
    Cutoff("Phi-2", r"microsoft/phi-2", Date(2023, 12, 31), "release in December 2023 (Microsoft Research blog)"),
    Cutoff(
        "DeepSeek-V3",
        r"deepseek-ai/deepseek-v3(-base)?",
        Date(2024, 12, 31),
        "release in December 2024 (arXiv 2412.19437)",
    ),
    Cutoff("gpt-oss", r"openai/gpt-oss-(20b|120b)", Date(2025, 8, 31), "release in August 2025 (OpenAI model card)"),
    Cutoff("embedded", r"embedded", embedded.CUTOFF, "last day of its corpus (fsd.data.embedded)"),
)


def cutoff(model: str) -> Cutoff:
    """The fact about a model, by its hub id or `embedded`.

    Raises:
        UsageError: for a model that is not in the table.
    """
    for entry in CUTOFFS:
        if re.fullmatch(entry.pattern, model, re.IGNORECASE):
            return entry
    families = ", ".join(dict.fromkeys(entry.family for entry in CUTOFFS))
    raise UsageError(f"the cutoff of {model} must be given by --after DATE; known are {families}, by their hub ids")
