import numpy as np
import pytest

from fsd.evaluation import remembered as module
from fsd.evaluation.remembered import remembered
from fsd.scoring.cache import SQLiteStore
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audited import Audit, Control, Leak, Leaks, Telling
from fsd.verdicts.domain_check import Trial

TRIAL = Trial({"wikipedia": 1.0, "manual": 1 / 3}, {"capitals": 0.1})
SCORES = np.array([0.1, 1 / 3, -2.0])
AUDIT = Audit(
    Leaks((Leak("unseen", "test", "group", "a \x00 “text”", "b"),), 1, 2, 0, 3),
    Control(Estimate(0.1 + 0.2, 0.3, 1 / 3), scores=SCORES),
    Control(None, "no text has it"),
    Control(Estimate(0.5, 0.4, 0.6)),
    Telling("“merely”", 0.1, 0.2, 1.0, 1726),
)


@pytest.fixture
def store(tmp_path):
    return SQLiteStore(tmp_path / "statistics.sqlite")


def counted(result):
    calls = []

    def compute():
        calls.append(None)
        return result

    return compute, calls


@pytest.mark.parametrize("result", [TRIAL, AUDIT])
def test_a_result_is_computed_once_for_what_it_follows_from(store, result):
    compute, calls = counted(result)
    for texts in (["a"], ["a"], ["b"], ["a"]):
        again = remembered(compute, type(result), store, lambda texts=texts: texts)
        assert again == result
    assert len(calls) == 2
    if isinstance(again, Audit):
        assert again.blind.scores.tobytes() == SCORES.tobytes()
        assert again.length.scores is None


def test_without_a_store_everything_is_computed(monkeypatch):
    compute, calls = counted(TRIAL)
    for _ in range(2):
        assert remembered(compute, Trial, None, lambda: pytest.fail("nothing is hashed")) == TRIAL
    assert len(calls) == 2


def test_other_code_or_another_library_gives_a_new_result(store, monkeypatch, tmp_path):
    compute, calls = counted(TRIAL)
    code = tmp_path / "fsd" / "evaluation" / "remembered.py"
    code.parent.mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(code))
    for content, version in (("a = 1", "1"), ("a = 1", "1"), ("a = 2", "1"), ("a = 2", "2")):
        code.write_text(content)
        monkeypatch.setattr(module, "version", lambda _, version=version: version)
        module._key.cache_clear()
        remembered(compute, Trial, store, list)
    module._key.cache_clear()
    assert len(calls) == 3


def test_what_is_no_json_and_what_has_another_form_is_computed_again(store, monkeypatch):
    torn = Trial({"half of a pair \ud800": 1.0}, {})
    compute, calls = counted(torn)
    for _ in range(2):
        assert remembered(compute, Trial, store, list) == torn
    assert len(calls) == 2
    monkeypatch.setattr(module, "_key", lambda _: "the same")
    remembered(lambda: TRIAL, Trial, store, list)
    assert remembered(lambda: AUDIT, Audit, store, list) == AUDIT
