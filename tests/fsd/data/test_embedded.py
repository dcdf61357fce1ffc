"""The embedded corpora: their sizes, what they hide and what they name."""

from itertools import product

import pytest

from fsd.config import DataConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.data.near_duplicates import families
from fsd.data.periods import kinds_of
from fsd.net.hub import EMBEDDED
from pipelines.experiment.inputs import load_texts, with_embedded_model


def auc(first, second):
    return sum((a > b) + 0.5 * (a == b) for a, b in product(first, second)) / len(first) / len(second)


@pytest.mark.parametrize(
    ("domain", "sizes"),
    [
        ("arxiv", {"member": 210, "contemporary": 210}),
        ("wikipedia", {"member": 140, "contemporary": 140, "later": 260}),
    ],
)
def test_neither_date_nor_length_tells_members_from_contemporaries(domain, sizes):
    documents = list(embedded.corpus(domain))
    kind = kinds_of(documents).tolist()
    assert {name: kind.count(name) for name in set(kind)} == sizes
    sides = [[d for d, one in zip(documents, kind, strict=True) if one == side] for side in ("member", "contemporary")]
    assert abs(auc(*([d.date for d in side] for side in sides)) - 0.5) < 0.05
    assert abs(auc(*([len(d.text) for d in side] for side in sides)) - 0.5) < 0.06
    assert len(set(families(documents))) > 0.99 * len(documents)


def test_no_later_article_is_as_old_as_the_others():
    documents = list(embedded.corpus("wikipedia"))
    cutoff = embedded.CORPORA["wikipedia"].cutoff
    assert all((d.date <= cutoff) == (d.period == "2012-2016") for d in documents if d.date)


def test_the_default_model_is_that_of_the_domain():
    config = with_embedded_model(FSDConfig(data=DataConfig(domain="wikipedia")))
    assert config.model.model == "embedded-wikipedia"
    assert len(load_texts(config.data, config.model).documents) == 540
    arxiv = FSDConfig()
    own = FSDConfig(data=DataConfig(domain="wikipedia", data=("mine.jsonl",)))
    named = FSDConfig(data=DataConfig(domain="wikipedia"), model=ModelConfig(model="gpt2"))
    assert [with_embedded_model(config) for config in (arxiv, own, named)] == [arxiv, own, named]


def test_all_embedded_models_share_one_tokenizer():
    assert len({(folder / "tokenizer.json").read_bytes() for folder in EMBEDDED.values()}) == 1
