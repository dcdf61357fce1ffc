"""Prompts → norms of the gradient of the loss by the model's own weights: one forward and one backward pass each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fsd import distributed
from fsd.models.language_model import LanguageModel
from fsd.progress import progress
from fsd.token_stats import GradientNorms, Prompt

ADAPTER = ("lora_", "ia3_")
"""Parts of the names of an adapter's weights."""


@dataclass(eq=False)
class GradientScorer:
    """Norms of the gradient by the base's weights alone, adapter off or on; long texts count with their beginning."""

    language_model: LanguageModel
    tuned: bool = False
    description: str = ""

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[GradientNorms]:
        """Norms for each prompt's text, given its context, in order; repeated prompts are computed once."""
        known = distributed.from_main(lambda: self._computed(list(dict.fromkeys(prompts))))
        return iter([known[prompt] for prompt in prompts])

    def _computed(self, prompts: Sequence[Prompt]) -> dict[Prompt, GradientNorms]:
        known: dict[Prompt, GradientNorms] = {}
        with (
            self.language_model.state(tuned=self.tuned) as network,
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            _differentiable(network) as weights,
            progress(len(prompts), self.description, "text", shown=bool(self.description)) as bar,
        ):
            for prompt in prompts:
                known[prompt] = self._norms(network, weights, prompt)
                bar.update()
        return known

    def _norms(self, network: torch.nn.Module, weights: list[torch.nn.Parameter], prompt: Prompt) -> GradientNorms:
        model = self.language_model
        text = model.tokens([prompt.text])[0][: model.context]
        head = [model.start, *(model.tokens([prompt.context])[0] if prompt.context else [])]
        head = head[-(model.context + 1 - len(text)) :]
        x = torch.tensor([[*head, *text]], device=model.device)
        logits = network(input_ids=x[:, :-1], use_cache=False).logits[0, len(head) - 1 :].float()
        loss = torch.nn.functional.cross_entropy(logits, x[0, len(head) :].to(logits.device))
        found = [g.float() for g in torch.autograd.grad(loss, weights, allow_unused=True) if g is not None]
        total = sum(float(g.abs().sum(dtype=torch.float64)) for g in found)
        squares = sum(float(g.square().sum(dtype=torch.float64)) for g in found)
        return GradientNorms(total, squares**0.5, max(float(g.abs().max()) for g in found))


@contextmanager
def _differentiable(network: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """The base's weights, which need a gradient inside."""
    weights = [w for name, w in network.named_parameters() if not any(part in name for part in ADAPTER)]
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        yield weights
    finally:
        for weight, needed in zip(weights, before, strict=True):
            weight.requires_grad_(needed)
