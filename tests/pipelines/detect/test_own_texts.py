"""Texts that the model in question wrote: nobody had read them, and they score as high as texts that it read."""

import json
import random
import re

import mlflow
import pandas as pd
import pytest

from fsd.config import AdapterConfig, DataConfig, DetectorConfig, FSDConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.models.language_model import load
from fsd.scoring.sampling import Sampling, generated, seeded
from fsd.verdicts.verdicts import MEMBER, OUT_OF_DOMAIN, Rules
from pipelines.detect.classifier import MembershipClassifier
from pipelines.fsd import prepare

pytestmark = pytest.mark.slow
VERSION = "models:/fsd-arxiv/1"
ABSTRACTS = random.Random(5).sample(list(embedded.corpus()), 420)
READ = [document.text for document in ABSTRACTS if document.member]
UNREAD = [document.text for document in ABSTRACTS if not document.member]
HONEST = UNREAD[130:170]


def continued(model, texts, temperature, words):
    """Texts of which the model is given the first words; they end with a sentence, as a person would cut them."""
    written = []
    for text in texts:
        opening = " ".join(text.split()[:words])
        (given, whole) = model.tokens([opening, text])
        with model.state(tuned=False) as network, seeded(model, text, temperature):
            (rest,) = generated(model, network, [[model.start, *given]], len(whole) - len(given), Sampling(temperature))
        ends = [found.end() for found in re.finditer(r"[.!?](?=\s|$)", opening + rest)]
        written.append((opening + rest)[: ends[-1] if ends else None])
    return written


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """A run on 150 members and 130 unread abstracts."""
    folder = tmp_path_factory.mktemp("own")
    rows = [{"text": text, "label": 1} for text in READ[:150]] + [{"text": text, "label": 0} for text in UNREAD[:130]]
    (folder / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = FSDConfig(
        data=DataConfig(data=(str(folder / "run.jsonl"),)),
        model=ModelConfig(model="embedded", device="cpu"),
        training=AdapterConfig(epochs=1),
        detection=DetectorConfig(detectors="loss,min_k_pp,unread_z"),
        placebo="none",
        audit_repeats=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(config).run()
        yield folder


def test_what_the_model_wrote_is_not_called_alone_or_among_honest_texts(registered):
    classifier = MembershipClassifier(VERSION)
    assert classifier.calibration.reference.written
    model = load(ModelConfig(model="embedded", device="cpu", cache="none"))
    openings = UNREAD[170:182]
    guests = {
        (temperature, words): continued(model, openings, temperature, words)
        for temperature in (0.5, 0.7, 1.0)
        for words in (10, 40)
    }
    called = judged = 0
    for (temperature, _), texts in guests.items():
        alone = classifier.verdicts(texts)
        among = [classifier.verdicts([*texts[n : n + 3], *HONEST[:34]]).head(3) for n in range(0, 12, 3)]
        for table in [alone, *among]:
            called += (table["verdict"] == MEMBER).sum()
            judged += len(table)
        if temperature < 1:
            assert (pd.concat(among)["verdict"] == OUT_OF_DOMAIN).mean() >= 0.8
            assert pd.concat(among)["warning"].str.contains("too probable for the model").any()
    assert called <= 0.05 * judged
    pyfunc = mlflow.pyfunc.load_model(VERSION)
    rows = pd.DataFrame({"text": [*guests[0.7, 40][:3], *HONEST[:20]]})
    assert MEMBER not in set(pyfunc.predict(rows)["verdict"][:3])
    honest = classifier.classify([Document(text) for text in HONEST], Rules())
    assert (honest.table["verdict"] == MEMBER).mean() <= 0.1
    assert honest.table["p_value"].notna().mean() > 0.8
    found = classifier.verdicts([*READ[150:], *HONEST[:20]]).head(60)
    by_calibration_alone = classifier.calibration.p_values(found["score"].to_numpy()) <= 0.05
    assert (found["verdict"] == MEMBER).sum() >= 0.6 * by_calibration_alone.sum() > 0
