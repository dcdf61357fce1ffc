"""One reading by several processes: the batches are dealt out, and the numbers are those of one process."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fsd.distributed import Team
from fsd.scoring.batching import Plan, Window
from fsd.token_stats import FloatArray, Prompt, TokenStats

ROUND = 32
"""Batches of each process between two gatherings."""


class Planner(Protocol):
    """What is needed of `fsd.scoring.model_scorer.ModelScorer`."""

    max_batch_tokens: int

    def plan(self, prompts: Sequence[Prompt]) -> Plan: ...  # noqa: D102 - see above
    def bar(self, plan: Plan) -> Any: ...  # noqa: D102
    def columns(  # noqa: D102
        self, plan: Plan, batches: Sequence[Sequence[Window]], bar: Any
    ) -> list[tuple[Window, FloatArray]]: ...


class Divided:
    """A model's scorer whose batches are dealt out to all processes of a team.

    Every process lays out the same batches as one alone would and takes every n-th, so the numbers are bitwise those
    of one process; they are sorted by length, so the shares are alike.

    Args:
        name: by which the others know the scorer.
        scorer: the scorer of this process, made when it is first needed.
        team: the processes.
    """

    def __init__(self, name: str, scorer: Callable[[], Planner], team: Team) -> None:
        self.name, self.team = name, team
        self._made = functools.cache(scorer)

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; for the main process."""
        distinct = list(dict.fromkeys(prompts))
        if distinct:
            answers = dict(self.as_read(distinct))
            yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each of N ≥ 1 distinct prompts with its statistics, as soon as it is ready; for the main process."""
        scorer = self._made()
        plan = scorer.plan(prompts)
        turn = self.team.tell((self.name, list(prompts), scorer.max_batch_tokens))
        with scorer.bar(plan) as bar:
            yield from plan.finished(self._gathered(scorer, plan, turn, bar))

    def help(self, prompts: Sequence[Prompt], limit: int) -> None:
        """Read this process's share, for the others.

        Args:
            prompts: those of the main process.
            limit: its padded tokens per forward pass, with which the batches are the same.
        """
        scorer = self._made()
        scorer.max_batch_tokens = limit
        plan = scorer.plan(prompts)
        with scorer.bar(plan) as bar:
            for number, mine in enumerate(self._shares(plan)):
                found = scorer.columns(plan, mine[self.team.rank], bar)
                spans, values = [span for span, _ in found], [v for _, v in found]
                kept = np.concatenate(values, axis=1).astype(np.float32) if values else None
                self.team.send(
                    f"read/{self.team.rank}/{self.team.turn}/{number}", (spans, kept, scorer.max_batch_tokens)
                )

    def _gathered(self, scorer: Planner, plan: Plan, turn: int, bar: Any) -> Iterator[tuple[Window, FloatArray]]:
        for number, shares in enumerate(self._shares(plan)):
            yield from scorer.columns(plan, shares[0], bar)
            for rank in range(1, self.team.size):
                spans, kept, limit = self.team.receive(f"read/{rank}/{turn}/{number}")
                scorer.max_batch_tokens = min(scorer.max_batch_tokens, limit)
                begin = 0
                for span in spans:
                    end = begin + span.end - span.first
                    yield span, kept[:, begin:end].astype(np.float64)
                    bar.update(span.size)
                    begin = end

    def _shares(self, plan: Plan) -> Iterator[list[Sequence[Sequence[Window]]]]:
        """Round for round, the batches of each process."""
        step = ROUND * self.team.size
        for begin in range(0, len(plan.batches), step):
            batches = plan.batches[begin : begin + step]
            yield [batches[rank :: self.team.size] for rank in range(self.team.size)]
