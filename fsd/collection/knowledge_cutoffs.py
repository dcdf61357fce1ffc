"""Knowledge cutoffs: days after which no text can be in a model's pretraining data, each with its source.

The day is the release of the model, or of its training data if that was published as a fixed set before. Training ended
before the release, so the day is safe; where only the month of a release is certain, it is the last day of that month.
A model that is not listed has no entry, even if its name begins like a listed one: later variants were trained on later
texts.
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
    """A row of the table.

    Attributes:
        family: name of the models.
        pattern: regular expression for the whole hub id, in any case.
        day: no text first published after it can be in the pretraining data.
        source: the event of that day, and the reference.
    """

    family: str
    pattern: str
    day: Date
    source: str


# fmt: off
_TABLE = (
    ("LLaMA", rf"(huggyllama|decapoda-research)/llama-{SIZE}(-hf)?", "2023-02-24",
     "release (Meta, 24 Feb 2023; arXiv 2302.13971)"),
    ("Llama 2", rf"meta-llama/llama-2-{SIZE}{CHAT}", "2023-07-18",
     "release (model card; pretraining data end in Sep 2022)"),
    ("Llama 3", rf"meta-llama/meta-llama-3-{SIZE}{CHAT}", "2024-04-18",
     "release (model card; data end in Mar and Dec 2023)"),
    ("Llama 3.1", rf"meta-llama/(meta-)?llama-3\.1-{SIZE}{CHAT}", "2024-07-23",
     "release (model card; data end in Dec 2023)"),
    ("Llama 3.2", rf"meta-llama/llama-3\.2-{SIZE}{CHAT}", "2024-09-25", "release (model card; data end in Dec 2023)"),
    ("Llama 3.3", rf"meta-llama/llama-3\.3-70b{CHAT}", "2024-12-06", "release (model card; data end in Dec 2023)"),
    ("Llama 4", r"meta-llama/llama-4-(scout|maverick)-.*", "2025-04-05", "release (model card; data end in Aug 2024)"),
    ("Pythia", rf"eleutherai/pythia-{SIZE}(-deduped)?(-v0)?", "2020-12-31", PILE),
    ("GPT-Neo", rf"eleutherai/gpt-neo-{SIZE}", "2020-12-31", PILE),
    ("GPT-J", r"eleutherai/gpt-j-6b", "2020-12-31", PILE),
    ("GPT-NeoX", r"eleutherai/gpt-neox-20b", "2020-12-31", PILE),
    ("OPT", rf"facebook/opt-{SIZE}", "2022-05-03", "release (Meta, 3 May 2022; arXiv 2205.01068)"),
    ("OLMo", r"allenai/olmo-(1b|7b|7b-twin-2t)(-hf)?", "2024-02-01",
     "release (Ai2, 1 Feb 2024; trained on Dolma, arXiv 2402.00159)"),
    ("OLMo 0424", r"allenai/olmo-(7b-0424|1\.7-7b)(-hf)?", "2024-04-30", "release in April 2024 (model card)"),
    ("OLMo 0724", r"allenai/olmo-[17]b-0724(-hf)?", "2024-07-31", "release in July 2024 (model card)"),
    ("OLMo 2", r"allenai/olmo-2-1124-(7b|13b)", "2024-11-30", "release in November 2024 (model card)"),
    ("Qwen1.5", rf"qwen/qwen1\.5-(0\.5b|1\.8b|4b|7b|14b|72b){CHAT}", "2024-02-29",
     "release in February 2024 (Qwen blog, Introducing Qwen1.5)"),
    ("Qwen1.5", rf"qwen/qwen1\.5-(32b|110b){CHAT}", "2024-04-30", "release in April 2024 (Qwen blog)"),
    ("Qwen2", rf"qwen/qwen2-(0\.5b|1\.5b|7b|72b){CHAT}", "2024-06-30", "release in June 2024 (Qwen blog, Hello Qwen2)"),
    ("Qwen2.5", rf"qwen/qwen2\.5-(0\.5b|1\.5b|3b|7b|14b|32b|72b){CHAT}", "2024-09-30",
     "release in September 2024 (Qwen blog)"),
    ("Qwen3", rf"qwen/qwen3-(0\.6b|1\.7b|4b|8b|14b|32b){CHAT}", "2025-04-30",
     "release in April 2025 (Qwen blog; arXiv 2505.09388)"),
    ("Baichuan", r"baichuan-inc/baichuan-7b", "2023-06-30", "release in June 2023 (model card)"),
    ("Baichuan", rf"baichuan-inc/baichuan-13b{CHAT}", "2023-07-31", "release in July 2023 (model card)"),
    ("Baichuan 2", rf"baichuan-inc/baichuan2-(7b|13b){CHAT}", "2023-09-30",
     "release in September 2023 (arXiv 2309.10305)"),
    ("GPT-2", r"(openai-community/)?gpt2(-medium|-large|-xl)?", "2019-02-28",
     "paper of February 2019 on WebText, whose links end in Dec 2017"),
    ("BLOOM", rf"bigscience/bloom(-{SIZE})?", "2022-07-31", "release in July 2022 (BigScience)"),
    ("MPT", r"mosaicml/mpt-7b", "2023-05-31", "release in May 2023 (MosaicML blog)"),
    ("Mistral", r"mistralai/mistral-7b-v0\.1", "2023-09-30", "release in September 2023 (Mistral AI)"),
    ("Mixtral", r"mistralai/mixtral-8x7b(-instruct)?-v0\.1", "2023-12-31", "release in December 2023 (Mistral AI)"),
    ("Gemma", rf"google/gemma-(2b|7b){CHAT}", "2024-02-29", "release in February 2024 (Google; arXiv 2403.08295)"),
    ("Gemma 2", rf"google/gemma-2-(2b|9b|27b){CHAT}", "2024-07-31",
     "releases of June and July 2024 (Google; arXiv 2408.00118)"),
    ("Gemma 3", r"google/gemma-3-(1b|4b|12b|27b)-(pt|it)", "2025-03-31",
     "release in March 2025 (Google; arXiv 2503.19786)"),
    ("Phi-2", r"microsoft/phi-2", "2023-12-31", "release in December 2023 (Microsoft Research blog)"),
    ("DeepSeek-V3", r"deepseek-ai/deepseek-v3(-base)?", "2024-12-31", "release in December 2024 (arXiv 2412.19437)"),
    ("gpt-oss", r"openai/gpt-oss-(20b|120b)", "2025-08-31", "release in August 2025 (OpenAI model card)"),
    *((corpus.model, corpus.model, str(corpus.cutoff), "last day of its corpus (fsd.data.embedded)")
      for corpus in embedded.CORPORA.values()),
)
# fmt: on
CUTOFFS = tuple(Cutoff(family, pattern, Date.fromisoformat(day), source) for family, pattern, day, source in _TABLE)


def cutoff(model: str) -> Cutoff:
    """The cutoff of a model, by its hub id or `embedded`.

    Raises:
        UsageError: for a model that is not in the table.
    """
    for entry in CUTOFFS:
        if re.fullmatch(entry.pattern, model, re.IGNORECASE):
            return entry
    families = ", ".join(dict.fromkeys(entry.family for entry in CUTOFFS))
    raise UsageError(f"the cutoff of {model} must be given by --after DATE; known are {families}, by their hub ids")
