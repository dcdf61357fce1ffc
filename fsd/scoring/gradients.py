"""Prompts → norms of the gradient of the loss by the model's own weights: one forward and one backward pass each."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fsd import distributed
from fsd.errors import UsageError
from fsd.models.adapters import base_weights
from fsd.models.language_model import LanguageModel
from fsd.progress import progress
from fsd.scoring.model_scorer import scored_part
from fsd.token_stats import GradientNorms, Prompt, Prompts, TokenIds


@dataclass(eq=False)
class GradientScorer:
    """Norms of the gradient by the base's weights alone, adapter off or on; long texts count with their beginning."""

    language_model: LanguageModel
    tuned: bool = False
    description: str = ""

    def __call__(self, prompts: Prompts) -> Iterator[GradientNorms]:
        """Norms for each prompt's text, given its context, in order; repeated prompts are computed once."""
        norms = distributed.from_main(lambda: self._computed(dict.fromkeys(prompts)))
        return map(norms.__getitem__, prompts)

    def _computed(self, prompts: Collection[Prompt]) -> dict[Prompt, GradientNorms]:
        norms = {}
        with (
            self.language_model.state(tuned=self.tuned) as network,
            _differentiable(network) as weights,
            progress(len(prompts), self.description, "text") as bar,
        ):
            for prompt in prompts:
                norms[prompt] = self._norms(network, weights, prompt)
                bar.update()
        return norms

    def _norms(self, network: torch.nn.Module, weights: list[torch.nn.Parameter], prompt: Prompt) -> GradientNorms:
        model = self.language_model
        head, text = self._ids(prompt)
        # The last token is predicted and not read, so one more than the model's context fits.
        text = text[: model.context]
        head = head[-(model.context + 1 - len(text)) :]
        scored = len(head)
        x = torch.tensor([head + text], device=model.device)
        logits = network(input_ids=x[:, :-1], use_cache=False).logits
        logits = logits[0, scored - 1 :].float()
        target = x[0, scored:].to(logits.device)
        if prompt.marked:
            start = prompt.marked.scored.index(True)
            marks = torch.tensor(prompt.marked.scored[start : start + len(target)], device=logits.device)
            logits = logits[marks]
            target = target[marks]
        loss = torch.nn.functional.cross_entropy(logits, target)
        total = squares = largest = 0.0
        # Some weights, such as those of another task's head, take no part in the loss.
        for gradient in torch.autograd.grad(loss, weights, allow_unused=True):
            if gradient is None:
                continue
            sizes = gradient.float().abs()
            # Millions of small numbers are added: float32 would lose them beside the sum.
            total += float(sizes.sum(dtype=torch.float64))
            squares += float(sizes.square().sum(dtype=torch.float64))
            largest = max(largest, float(sizes.max()))
        return GradientNorms(total, squares**0.5, largest)

    def _ids(self, prompt: Prompt) -> tuple[TokenIds, TokenIds]:
        """The ids that are given, the start token at least, and those from the first that is scored on."""
        model = self.language_model
        if prompt.marked:
            row, start = scored_part(prompt.marked)
            return row[: start + 1], row[start + 1 :]
        if not model.starts:
            raise UsageError("gradient_norm must have a start token before the text: leave out --first-token given")
        text = model.tokens([prompt.text])[0]
        head = [model.start]
        if prompt.context:
            head += model.tokens([prompt.context])[0]
        return head, text


@contextmanager
def _differentiable(network: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """The base's weights, which need a gradient inside."""
    weights = base_weights(network)
    # A later training would otherwise train the base as well.
    needed = [weight.requires_grad for weight in weights]
    # A model's state switches on inference mode, in which nothing can have a gradient.
    with torch.inference_mode(mode=False), torch.enable_grad():
        try:
            for weight in weights:
                weight.requires_grad_(True)
            yield weights
        finally:
            for weight, state in zip(weights, needed, strict=True):
                weight.requires_grad_(state)
