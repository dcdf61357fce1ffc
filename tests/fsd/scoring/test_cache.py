"""Memoized scorers: nothing is computed twice, any change is computed again, and no error of the file is fatal."""

import importlib.metadata
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsd.config import AdapterConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models.finetuning import finetune
from fsd.models.language_model import BaseIdentity, load
from fsd.net.hub import default_folder
from fsd.scoring import cache, model_scorer
from fsd.scoring.cache import FILE, MemoizedScorer, MemoryStore, SQLiteStore, model_key, prompt_hash
from fsd.scoring.model_scorer import hidden_states
from fsd.scoring.scorers import hidden_state_reader
from fsd.token_stats import Continuations, Prompt, TokenStats

PROMPTS = [Prompt("a member"), Prompt("unseen text", "a member"), Prompt("x"), Prompt("a member")]


class FakeScorer:
    """A scorer whose numbers are made of the text, and that records its prompts."""

    def __init__(self, scale=1.0):
        self.scale = scale
        self.prompts = []

    def __call__(self, prompts):
        for prompt in prompts:
            self.prompts.append(prompt)
            token = np.frombuffer(prompt.text.encode(), np.uint8).astype(np.int64)
            logp = (-self.scale * (token + len(prompt.context))).astype(np.float64)
            yield TokenStats(prompt.text, token, logp, logp / 2, np.ones_like(logp))


@pytest.fixture
def store(tmp_path):
    return SQLiteStore(tmp_path / "cache" / FILE)


def reopened(store, **options):
    """The same file as another process sees it."""
    return SQLiteStore(store.file, **options)


def execute(store, query, *values):
    with sqlite3.connect(store.file) as db:
        rows = db.execute(query, values).fetchall()
    db.close()
    return rows


def same(one, other):
    """Whether all statistics are equal, bit by bit but for the kind of NaN."""
    names = ("token", "logp", "mean", "std")
    return len(one) == len(other) and all(
        a.text == b.text and all(np.array_equal(getattr(a, n), getattr(b, n), equal_nan=True) for n in names)
        for a, b in zip(one, other, strict=True)
    )


def computed(store, prompts=PROMPTS, key="k"):
    """The prompts that a memoized scorer computes; the numbers must be those of the scorer itself."""
    scorer = FakeScorer()
    assert same(list(MemoizedScorer(scorer, store, key)(prompts)), list(FakeScorer()(prompts)))
    return scorer.prompts


def test_a_prompt_is_computed_once_in_memory_and_on_disk(store):
    scorer = FakeScorer()
    memoized = MemoizedScorer(scorer)
    first, again = list(memoized(PROMPTS)), list(memoized([Prompt("x"), Prompt("d")]))
    assert scorer.prompts == [*PROMPTS[:3], Prompt("d")]
    assert first[0] is first[3]
    assert first[2] is again[0]
    assert MemoizedScorer(FakeScorer(), store, "k").unknown(PROMPTS) == PROMPTS[:3]
    assert computed(store) == PROMPTS[:3]
    for other in (store, reopened(store)):
        assert computed(other) == []
        assert MemoizedScorer(FakeScorer(), other, "k").unknown(PROMPTS) == []
    assert computed(reopened(store), [Prompt("new"), *PROMPTS]) == [Prompt("new")]


def test_another_key_text_or_context_is_computed(store):
    computed(store, [Prompt("ab", "c")])
    for key, prompt in (("l", Prompt("ab", "c")), ("k", Prompt("a", "bc")), ("k", Prompt("ab")), ("k", Prompt("abc"))):
        assert computed(reopened(store), [prompt], key) == [prompt]
    assert prompt_hash(Prompt("\ud800")) != prompt_hash(Prompt("\ud801"))  # unpaired surrogates
    for place in (store, MemoryStore()):  # a function is called at every call
        scorer, keys = FakeScorer(), iter(["a", "a", "b"])
        memoized = MemoizedScorer(scorer, place, lambda keys=keys: next(keys))
        for expected in (1, 1, 2):
            list(memoized([Prompt("x")]))
            assert len(scorer.prompts) == expected


def test_numbers_come_back_bitwise(store):
    for scale in (1.0, 0.1):
        expected, key = list(FakeScorer(scale)(PROMPTS[:2])), str(scale)
        list(MemoizedScorer(FakeScorer(scale), store, key)(PROMPTS[:2]))
        assert same(list(MemoizedScorer(FakeScorer(9.0), reopened(store), key)(PROMPTS[:2])), expected)
    nan = np.full(2, np.nan)  # what an API does not give
    stats = TokenStats("a b", np.array([-1, -1]), np.array([-0.1, -np.inf]), nan, nan)
    store.save("k", [(Prompt("a b"), stats)])
    assert same([reopened(store).load("k", [Prompt("a b")])[Prompt("a b")]], [stats])
    states = np.array([0.1, 1e300, -0.0, 2.5])
    store.save("key", [(Prompt("x"), states)])
    assert np.array_equal(store.load("key", [Prompt("x")])[Prompt("x")], states)


def test_texts_come_back_as_they_were(store):
    told = Continuations(" of a", ("\n天 \ud800", "", "x"), "0")
    list(MemoizedScorer(lambda prompts: [told], store, "k")(PROMPTS[:1]))
    assert list(MemoizedScorer(lambda prompts: [], reopened(store), "k")(PROMPTS[:1])) == [told]


def test_statistics_are_stored_in_parts_after_a_minute_and_at_an_interruption(store, monkeypatch):
    prompts, saved, save = [Prompt(f"text {i}") for i in range(10)], [], SQLiteStore.save
    with monkeypatch.context() as patch:
        patch.setattr(cache, "ROWS", 4)
        patch.setattr(SQLiteStore, "save", lambda self, key, rows: saved.append(len(rows)) or save(self, key, rows))
        computed(store, prompts)
    assert saved == [4, 4, 2]
    assert computed(reopened(store), prompts) == []
    seconds = iter(range(0, 1000, 20))
    with monkeypatch.context() as patch:
        patch.setattr(cache.time, "monotonic", lambda: next(seconds))
        results = MemoizedScorer(FakeScorer(), store, "l")._computed("l", prompts)
        for _ in range(5):
            next(results)
    assert len(reopened(store).load("l", prompts)) == 3  # after 60 s

    def breaking(prompts):
        yield from FakeScorer()(prompts[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(MemoizedScorer(breaking, store, "k")(PROMPTS))
    assert computed(reopened(store)) == PROMPTS[2:3]


# Keys of models


@pytest.fixture
def model(tiny):
    return load(str(tiny), device="cpu")


def test_every_ingredient_changes_the_key(tiny, other, tmp_path, monkeypatch):
    def changed(name, change):
        file = shutil.copytree(tiny, tmp_path / name) / name
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        return model_key(load(str(file.parent), device="cpu"), tuned=False)

    model = load(str(tiny), device="cpu")
    config = AdapterConfig(epochs=5, batch_size=1, rank=2)
    keys = [model_key(model, tuned=False)]
    for seed in (0, 1):
        finetune(model, ["a member", "x y"], config, seed=seed, shown=False)
        assert model_key(model, tuned=False) == keys[0]
        keys.append(model_key(model, tuned=True))
    keys.append(model_key(load(str(other), device="cpu"), tuned=False))
    keys.append(model_key(load(str(tiny), device="cpu", dtype="bfloat16"), tuned=False))
    keys.append(changed("tokenizer.json", lambda content: content["model"]["merges"].pop()))
    keys.append(changed("config.json", lambda content: content.update(layer_norm_eps=0.1)))
    for name in ("start", "context"):
        setattr(model, name, getattr(model, name) + 1)
        keys.append(model_key(model, tuned=False))
    monkeypatch.setattr(cache, "ENGINE", cache.ENGINE + 1)
    keys.append(model_key(model, tuned=False))
    installed, quantizer = importlib.metadata.version, "0.49"
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: quantizer if name == "bitsandbytes" else installed(name)
    )
    for bits, quantizer in ((8, "0.49"), (4, "0.49"), (4, "0.50")):  # noqa: B007 - the version is read above
        with monkeypatch.context() as patch:
            patch.setattr(model.base, f"is_loaded_in_{bits}bit", True, raising=False)
            keys.append(model_key(model, tuned=False))
    assert len(set(keys)) == len(keys) == 13
    model.identity = BaseIdentity("pretrained", "", "")
    with pytest.raises(ValueError, match="must have a fingerprint"):
        model_key(model, tuned=False)


@pytest.mark.slow
def test_the_key_holds_across_processes_and_places(tiny, tmp_path, model):
    moved = shutil.copytree(tiny, tmp_path / "moved")
    line = "import sys; from fsd.models.language_model import load; from fsd.scoring.cache import model_key; "
    line += "print(model_key(load(sys.argv[1], device='cpu'), tuned=False))"
    run = subprocess.run([sys.executable, "-c", line, str(moved)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == model_key(model, tuned=False)


# Errors of the file


@pytest.mark.parametrize(
    ("fault", "why"),
    [("no folder", "File exists"), ("full", "database or disk is full"), ("no database", "file is not a database")],
)
def test_a_file_that_cannot_be_used_costs_one_line(store, capsys, monkeypatch, fault, why):
    if fault == "no folder":
        store.file.parent.write_text("a file")
    elif fault == "no database":
        store.file.parent.mkdir()
        store.file.write_bytes(b"something else" * 100)
    else:
        connect = SQLiteStore._connect

        def faulty(self):
            db = connect(self)
            db.execute("PRAGMA max_page_count = 4")
            return db

        monkeypatch.setattr(SQLiteStore, "_connect", faulty)
    for i in range(2):
        new = Prompt(f"{i}" * 100_000)
        assert new in computed(store, [*PROMPTS, new])
    assert capsys.readouterr().err == f"cache: {store.file} cannot be used: {why}; the run goes on without it\n"


def test_the_tables_of_earlier_versions_are_dropped(store):
    store.file.parent.mkdir()
    for name in ("statistics", "results"):
        execute(store, f"CREATE TABLE {name} (model, prompt, used, data)")
    assert computed(store) == PROMPTS[:3]
    assert computed(reopened(store)) == []
    assert execute(store, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("answers",)]


def test_answers_that_were_paid_for_are_not_dropped(store):
    store.file.parent.mkdir()
    for name in ("statistics", "results"):
        execute(store, f"CREATE TABLE {name} (model, prompt, used, data)")
        execute(store, f"INSERT INTO {name} VALUES ('of an API', 'a text', 0, 'an answer')")
    kept = reopened(store, limit=None, required=True)
    assert computed(kept) == PROMPTS[:3]
    assert computed(kept) == []
    assert execute(store, "SELECT data FROM statistics UNION ALL SELECT data FROM results") == [("an answer",)] * 2


def test_a_required_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("a text of somebody's\n" * 100)
    for name, why in (("folder", "unable to open database file"), ("text", "file is not a database")):
        scorer = FakeScorer()
        with pytest.raises(UsageError, match=rf"{name} must be a database that can be written; got: {why}"):
            list(MemoizedScorer(scorer, SQLiteStore(tmp_path / name, required=True), "k")(PROMPTS))
        assert scorer.prompts == []
    assert (tmp_path / "text").read_text().startswith("a text")


# Size and age


def age(store, name, seconds):
    used = int(time.time()) - seconds
    execute(store, "UPDATE answers SET used = ? WHERE prompt = ?", used, prompt_hash(Prompt(name)))


def long_result(name, tokens=16_000):
    numbers = np.arange(1.0, tokens + 1)
    return Prompt(name), TokenStats(name, numbers.astype(np.int64), -numbers, -numbers, numbers)


def test_the_rows_used_longest_ago_go_first(store):
    for at, name in enumerate("abcd"):
        store.save("k", [long_result(name)])
        age(store, name, 100 * (at + 1))
    store = reopened(store, limit=2_800_000)  # for three rows of 640 kB and the new one
    store.save("k", [long_result("e")])
    assert {prompt.text for prompt in store.load("k", map(Prompt, "abcde"))} == set("abce")
    size = store.file.stat().st_size
    for name in "fghijk":
        store.save("k", [long_result(name)])
    assert store.file.stat().st_size <= size <= 3_400_000
    small = reopened(store, limit=100)
    assert computed(small) == computed(small) == PROMPTS[:3]  # more than the limit is not stored


def test_loading_a_row_makes_it_young(store):
    for name, seconds in (("a", 10 * cache.TOUCH_SECONDS), ("b", 60)):
        store.save("k", [long_result(name, 1)])
        age(store, name, seconds)
    reopened(store).load("k", [Prompt("a"), Prompt("b")])
    ages = dict(execute(store, "SELECT prompt, used FROM answers"))
    seconds = [time.time() - ages[prompt_hash(Prompt(name))] for name in "ab"]
    assert seconds[0] < 30 < seconds[1]  # the second is young enough: nothing is written


# Several processes

WRITER = """
import sys
from pathlib import Path
import numpy as np
from fsd.scoring.cache import MemoizedScorer, SQLiteStore
from fsd.token_stats import Prompt, TokenStats
def scorer(prompts):
    for p in prompts:
        n = np.arange(1.0, 1 + int(p.text))
        yield TokenStats(p.text, n.astype(np.int64), -n, -n, n)
store = SQLiteStore(Path(sys.argv[1]), limit=int(sys.argv[2]))
for turn in range(30):
    prompts = [Prompt(str(1 + (turn * 7 + i) % 50)) for i in range(10)]
    for p, s in zip(prompts, MemoizedScorer(scorer, store, "k")(prompts), strict=True):
        assert s.token.size == int(p.text) and s.logp[-1] == -s.token.size
if sys.argv[3:]:
    store.save("k", [(Prompt("0"), next(iter(scorer([Prompt("51")]))))])
    print("stored", flush=True)
    with store._connect() as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM answers")
        input()
"""


@pytest.mark.slow
def test_several_writers_at_once_neither_damage_nor_mix_up(store, capsys):
    command = [sys.executable, "-c", WRITER, str(store.file), "100000"]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (0, "")
    stored = reopened(store).load("k", [Prompt(str(i)) for i in range(1, 51)])
    assert stored
    assert all(stats.token.size == int(prompt.text) for prompt, stats in stored.items())
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_stored(store, capsys):
    command = [sys.executable, "-c", WRITER, str(store.file), str(2**30), "killed"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "stored\n"
        writer.send_signal(signal.SIGKILL)
    assert len(reopened(store).load("k", [Prompt(str(i)) for i in range(51)])) == 51
    assert computed(reopened(store), [Prompt("new")]) == [Prompt("new")]
    assert computed(reopened(store), [Prompt("new")]) == []
    assert capsys.readouterr().err == ""


def test_the_folder_is_the_user_s_unless_it_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("FSD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "fsd"
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "here"))
    assert SQLiteStore().file == Path(tmp_path / "here" / "statistics.sqlite")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FSD_CACHE", "~/here")
    assert default_folder() == tmp_path / "here"


# Hidden states


def test_hidden_states_come_back_bitwise_and_depend_on_model_and_text(tiny, make_model, tmp_path, monkeypatch):
    texts = ["a member", "unseen text", "a member"]
    read = []

    def counted(model, texts):
        read.extend(texts)
        return hidden_states(model, texts)

    monkeypatch.setattr(model_scorer, "hidden_states", counted)
    config = ModelConfig(cache=str(tmp_path))
    models = [load(str(folder), device="cpu") for folder in (tiny, make_model("gpt_neox", seed=7))]
    fresh = [hidden_state_reader(model, config)(texts) for model in models]
    assert read == ["a member", "unseen text"] * 2
    assert not np.array_equal(*fresh)
    read.clear()
    for model, states in zip(models, fresh, strict=True):
        assert np.array_equal(hidden_state_reader(model, config)(texts), states)
        assert np.array_equal(states, hidden_states(model, texts[:2])[[0, 1, 0]])
    assert read == []
    hidden_state_reader(models[0], config)([*texts, "another"])
    assert read == ["another"]
    # Without a cache, and of a model without a fingerprint, all are read.
    nameless = replace(models[0], identity=BaseIdentity("any", "", ""))
    for model, settings in ((models[0], replace(config, cache="none")), (nameless, config)):
        read.clear()
        assert np.array_equal(hidden_state_reader(model, settings)(texts), hidden_states(models[0], texts))
        assert read == texts
