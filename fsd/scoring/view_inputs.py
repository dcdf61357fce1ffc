"""What forms need besides the text: prefixes, neighbours and other copies, texts with known labels."""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from fsd import distributed
from fsd.config import NEIGHBOURS, ModelConfig
from fsd.errors import at_least
from fsd.scoring.scorers import embedded_target
from fsd.token_stats import UNLABELLED, AnyTexts, Exemplars, Labelled, Prompt, Prompts, as_prompt, texts_of
from fsd.views import FEWEST_UNREAD, Copies, ViewInputs, repetitions

# Neighbours of a text by word swaps, or copies with words in another order; each of them costs a forward pass.
WORD_SWAPS = 5
# Most known texts of a label that the signals of a text are compared with or fitted to, as in OLMo-Detect.
KNOWN = 150
T = TypeVar("T")


def view_inputs(
    config: ModelConfig,
    unseen: AnyTexts,
    *,
    shots: int,
    seed: int,
    labelled: Labelled = UNLABELLED,
    adapting: Prompts = (),
    counted: bool = False,
) -> ViewInputs:
    """What detectors need besides the text, as far as unseen and labelled texts and the configuration give it.

    Copies that are only `counted` are empty, so that no model is loaded for them.
    """
    at_least(1, shots=shots)
    prompts = list(map(as_prompt, unseen))
    # What a model was fine-tuned on cannot tell what its scores are for texts that were not read.
    learned = set(adapting)
    unlearned = [prompt for prompt in prompts if prompt not in learned]
    texts = texts_of(prompts)
    return ViewInputs(
        primed=_prefix(_sample(texts, shots, seed)),
        neighbours=_neighbours(config, texts, seed, counted=counted),
        swapped=_swaps(seed, counted=counted),
        member_primed=member_prefix(labelled, shots, seed),
        nonmembers=Exemplars(_repeated(prompts, seed)) if prompts else None,
        labelled=both_sides(labelled, seed),
        unread=_unread(prompts, seed),
        adapted_unread=_unread(unlearned, seed),
        adapting=adapting,
        shots=shots,
    )


def _prefix(texts: Iterable[str]) -> str:
    """Texts as they stand before another one."""
    return "".join(f"{text}\n\n" for text in texts)


def _unread(prompts: Prompts, seed: int) -> Exemplars | None:
    """Known non-members that are read once; None if they are too few to learn from."""
    if len(prompts) < FEWEST_UNREAD:
        return None
    return Exemplars([[prompt] for prompt in _sample(prompts, KNOWN, seed)])


def _empty_copies(count: int, _: str) -> list[str]:
    return [""] * count


def _swaps(seed: int, *, counted: bool) -> Copies:
    """What makes copies of a text with words in another order."""
    if counted:
        return partial(_empty_copies, WORD_SWAPS)
    from fsd.scoring.neighbours import swapped_words

    return partial(swapped_words, count=WORD_SWAPS, seed=seed)


def _neighbours(config: ModelConfig, texts: Sequence[str], seed: int, *, counted: bool) -> Copies | None:
    """What makes the neighbours of a text: a masked language model, swaps of the texts' words, or nothing."""
    kind = config.neighbour_model or ("words" if embedded_target(config) else None)
    by_words = kind == "words"
    if kind is None or (by_words and not texts):
        return None
    at_least(1, neighbours=config.neighbours)
    count = config.neighbours or (WORD_SWAPS if by_words else NEIGHBOURS)
    if counted:
        return partial(_empty_copies, count)
    from fsd.scoring.neighbours import MaskedModel, build_vocabulary, word_swaps

    if by_words:
        vocabulary = build_vocabulary(texts)
        return partial(word_swaps, vocabulary=vocabulary, count=count, seed=seed)
    # Dropout makes the neighbours random, so one process draws them for all.
    if not distributed.is_main_process():
        return lambda text: distributed.from_main(list)
    device = "auto" if config.device == "spread" else config.device
    masked = MaskedModel(kind, count=count, device=device, seed=seed)
    return lambda text: distributed.from_main(lambda: masked(text))


def _repeated(prompts: Prompts, seed: int) -> list[list[Prompt]]:
    """Known texts after their contexts, each as it is and repeated; of chats, which have no copies, the words."""
    rows = []
    for sampled in _sample(prompts, KNOWN, seed):
        prompt = Prompt(sampled.text, sampled.context)
        rows.append([prompt, *repetitions(prompt)])
    return rows


def _sample(texts: Sequence[T], most: int, seed: int) -> list[T]:
    """So many of the texts in a random order, or all of them."""
    return random.Random(seed).sample(texts, min(most, len(texts)))


def both_sides(labelled: Labelled, seed: int) -> Exemplars | None:
    """Known members and non-members, of both if any family is left out; None if there are none."""
    sides = []
    for side in (True, False):
        # Sorted, so that the sample does not depend on the order of the texts.
        texts = sorted(text for text, (_, member) in labelled.items() if member is side)
        repeated = _repeated(list(map(Prompt, texts)), seed)
        families = {labelled[prompts[0].text][0] for prompts in repeated}
        # A fit leaves out the family of the text that it is for, and needs texts of both labels all the same.
        if len(families) < 2:
            return None
        sides += repeated
    return Exemplars(sides, labelled)


def member_prefix(labelled: Labelled, shots: int, seed: int) -> Callable[[str], str] | None:
    """Text → the first known members in a random order that are of another family than the text."""
    members = {text: family for text, (family, member) in labelled.items() if member}
    if len(set(members.values())) < 2:
        return None
    order = _sample(sorted(members), len(members), seed)

    def prefix(text: str) -> str:
        family, _ = labelled.get(text, (None, False))
        # After a relative of its own, every text is likely, member or not.
        unrelated = (member for member in order if members[member] != family)
        return _prefix(islice(unrelated, shots))

    return prefix
