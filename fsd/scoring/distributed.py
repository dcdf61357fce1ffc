"""Data-parallel scoring: each process of a job computes a share of the batches, to the numbers of a single process."""

from collections.abc import Iterator, Sequence
from typing import Any

from fsd.distributed import from_main, gather, is_main_process, num_processes, process_index
from fsd.scoring.batching import Plan, Window
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import FloatArray, Prompt, Scorer, TokenStats


class DistributedScorer(ModelScorer):
    """A `ModelScorer` whose calls are collective: all processes of a job make them together.

    The prompts are those of the main process. Every process lays out the batches that a single process would run and
    takes every n-th of them, so the numbers are bitwise those of a single process; the batches are sorted by length,
    so the shares take about equally long.
    """

    batches_per_round = ModelScorer.batches_per_round * num_processes()

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each distinct prompt of the main process with its statistics; see `ModelScorer.as_read`."""
        missing = from_main(lambda: list(prompts))
        if missing:
            yield from super().as_read(missing)

    def columns(self, plan: Plan, batches: Sequence[Sequence[Window]], bar: Any) -> list[tuple[Window, FloatArray]]:
        """The windows of these batches with their statistics, a share of them from each process."""
        share = super().columns(plan, batches[process_index() :: num_processes()], bar)
        shares = gather((share, self.max_batch_tokens))
        # Where memory ran out in one process, all of them lay out smaller batches from now on.
        self.max_batch_tokens = min(limit for _, limit in shares)
        columns = [column for share, _ in shares for column in share]
        bar.update(sum(window.size for window, _ in columns) - sum(window.size for window, _ in share))
        return columns


def collective(scorer: Scorer, distributed: DistributedScorer) -> Scorer:
    """A scorer that all processes call together and that gives each of them the main process's statistics."""

    def score(prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        statistics: list[TokenStats] = []
        if is_main_process():
            statistics = list(scorer(prompts))
            list(distributed.as_read([]))  # no more prompts in this call
        else:
            while list(distributed.as_read([])):
                pass
        return iter(from_main(lambda: statistics))

    return score
