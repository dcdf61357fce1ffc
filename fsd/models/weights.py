"""Whether the weights of a folder are those of the model that its configuration describes: no more and no fewer."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fsd.errors import UsageError, refusing
from fsd.progress import errors_alone

# What a checkpoint may have besides: tables that a model makes itself (rotary frequencies, causal masks, positions),
# and parts that predict no token from the ones before it (poolers, heads of other tasks, images and sound, and heads
# that look several tokens ahead).
_BESIDES = re.compile(
    r"(^|\.)("
    r"(rotary_)?(emb\.)?inv_freq"
    r"|attn\.(masked_)?bias|attention\.(masked_)?bias"
    r"|position_ids"
    r"|(pooler|seq_relationship|v_head|value_head|mtp|mtp_block)(\..*)?"
    r"|(vision_tower|vision_model|visual|audio_tower|multi_modal_projector|mm_projector|embed_vision|embed_audio)\..*"
    r")$"
)


def check_weights(model: str, report: Mapping[str, Any]) -> None:
    """Refuse what transformers only warns of: weights that are missing, and weights that it leaves out.

    `report` is what `from_pretrained` gives with `output_loading_info`. Missing weights are drawn by chance. Weights
    are left out where the configuration has fewer layers than the file: such a model gives numbers, but wrong ones.
    """
    check_complete(model, report)
    left_out = sorted(name for name in report["unexpected_keys"] if not _BESIDES.search(name))
    if left_out:
        raise UsageError(
            f"{model} must use all its weights; its configuration leaves out {len(left_out)}, e.g. {left_out[0]}"
        )


def check_complete(model: str, report: Mapping[str, Any]) -> None:
    """Refuse missing weights alone, where a file may hold any further ones: those of BERT have heads of other tasks."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise UsageError(f"{model} must have all its weights; {len(missing)} missing, e.g. {missing[0]}")


@contextlib.contextmanager
def reading(must: str) -> Iterator[None]:
    """Silence transformers, and turn what files that make no sense raise into a `UsageError` that begins as said."""
    # They raise errors of any type, in Python and in Rust.
    with errors_alone("transformers"), refusing(must):
        yield
