"""The second run reads nothing, any change reads again, and nothing wrong with the folder is fatal."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models.finetuning import finetune
from fsd.models.language_model import BaseIdentity, LanguageModel, load
from fsd.scoring import cache as module
from fsd.scoring.cache import MemoizedScorer, StatsCache, default_folder, model_key
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.shards import prompt_hash
from fsd.token_stats import Prompt, TokenStats

PROMPTS = [Prompt("a member"), Prompt("unseen text", "a member"), Prompt("x"), Prompt("a member")]


class Counting:
    """A scorer that gives numbers made of the text and remembers what it was asked."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.asked: list[Prompt] = []

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        for prompt in prompts:
            self.asked.append(prompt)
            token = np.frombuffer(prompt.text.encode(), np.uint8).astype(np.int64)
            logp = (-self.scale * (token + len(prompt.context))).astype(np.float64)
            yield TokenStats(prompt.text, token, logp, logp / 2, np.ones_like(logp))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> StatsCache:
    return StatsCache(tmp_path / "cache", say=said.append)


def again(store: StatsCache, **options: Any) -> StatsCache:
    """The same folder as another process would see it."""
    return StatsCache(store.folder, say=store.say, **options)


def shards(store: StatsCache) -> list[Path]:
    return sorted(store.folder.glob("*/*.stats"))


def same(one: Sequence[TokenStats], other: Sequence[TokenStats]) -> bool:
    return len(one) == len(other) and all(
        a.text == b.text and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("token", "logp", "mean", "std"))
        for a, b in zip(one, other, strict=True)
    )


def test_what_is_known_is_not_asked_again(store: StatsCache) -> None:
    scorer, expected = Counting(), list(Counting()(PROMPTS))
    assert same(list(MemoizedScorer(scorer, store, "k")(PROMPTS)), expected)
    assert scorer.asked == PROMPTS[:3]
    for cache in (store, again(store)):
        assert same(list(MemoizedScorer(scorer, cache, "k")(PROMPTS)), expected)
    assert len(scorer.asked) == 3
    assert same(list(MemoizedScorer(scorer, again(store), "k")([Prompt("new"), *PROMPTS]))[1:], expected)
    assert scorer.asked[3:] == [Prompt("new")]


def test_in_memory_a_prompt_is_computed_once() -> None:
    scorer = Counting()
    memoized = MemoizedScorer(scorer)
    first = list(memoized([Prompt("a b"), Prompt("c"), Prompt("a b")]))
    again = list(memoized([Prompt("c"), Prompt("d")]))
    assert scorer.asked == [Prompt("a b"), Prompt("c"), Prompt("d")]
    assert first[0] is first[2]
    assert first[1] is again[0]
    assert [stats.text for stats in again] == ["c", "d"]


def test_another_key_text_or_context_is_asked(store: StatsCache) -> None:
    scorer = Counting()
    list(MemoizedScorer(scorer, store, "k")([Prompt("ab", "c")]))
    for key, prompt in (("l", Prompt("ab", "c")), ("k", Prompt("a", "bc")), ("k", Prompt("ab")), ("k", Prompt("abc"))):
        before = len(scorer.asked)
        list(MemoizedScorer(scorer, again(store), key)([prompt]))
        assert len(scorer.asked) == before + 1


def test_a_key_that_is_a_function_is_asked_at_every_call(store: StatsCache) -> None:
    scorer, keys = Counting(), iter(["a", "a", "b"])
    cached = MemoizedScorer(scorer, store, lambda: next(keys))
    for expected in (1, 1, 2):
        list(cached([Prompt("x")]))
        assert len(scorer.asked) == expected


def test_numbers_that_float32_cannot_hold_come_back_bitwise(store: StatsCache) -> None:
    for scale, size in ((1.0, 4), (0.1, 8)):
        expected = list(Counting(scale)(PROMPTS))
        list(MemoizedScorer(Counting(scale), store, f"k{size}")(PROMPTS))
        assert same(list(MemoizedScorer(Counting(9.0), again(store), f"k{size}")(PROMPTS)), expected)


def test_many_prompts_stand_in_several_shards(store: StatsCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 4)
    prompts = [Prompt(f"text {i}") for i in range(10)]
    expected = list(MemoizedScorer(Counting(), store, "k")(prompts))
    assert len(shards(store)) == 3
    scorer = Counting()
    assert same(list(MemoizedScorer(scorer, again(store), "k")(prompts)), expected)
    assert scorer.asked == []


def test_what_an_interrupted_scorer_gave_is_kept(store: StatsCache) -> None:
    def breaking(prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        yield from Counting()(prompts[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(MemoizedScorer(breaking, store, "k")(PROMPTS))
    scorer = Counting()
    list(MemoizedScorer(scorer, again(store), "k")(PROMPTS))
    assert scorer.asked == PROMPTS[2:3]


# A model's numbers


@pytest.fixture
def model(tiny: Path) -> LanguageModel:
    return load(str(tiny), device="cpu")


def test_a_second_run_makes_no_forward_pass_and_the_same_numbers(model: LanguageModel, store: StatsCache) -> None:
    passes = []
    model.base.get_decoder().register_forward_pre_hook(lambda *_: passes.append(1))
    plain = list(ModelScorer(model)(PROMPTS))
    assert len(passes) == 3
    for cache in (store, again(store)):
        cached = list(MemoizedScorer(ModelScorer(model), cache, model_key(model, tuned=False))(PROMPTS))
        assert same(cached, plain)
        assert len(passes) == 6
    assert json.loads(shards(store)[0].read_bytes()[16:].split(b"}")[0] + b"}")["kind"] == "<f4"


def test_every_ingredient_changes_the_key(tiny: Path, other: Path, tmp_path: Path) -> None:
    model = load(str(tiny), device="cpu")
    config = AdapterConfig(epochs=5, batch_size=1, rank=2)
    keys = [model_key(model, tuned=False)]
    for seed in (0, 1):
        finetune(model, ["a member", "x y"], config, seed=seed, shown=False)
        assert model_key(model, tuned=False) == keys[0]
        keys.append(model_key(model, tuned=True))
    keys.append(model_key(load(str(other), device="cpu"), tuned=False))
    keys.append(model_key(load(str(tiny), device="cpu", dtype="bfloat16"), tuned=False))
    changed = Path(shutil.copytree(tiny, tmp_path / "changed"))
    file = changed / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["merges"].pop()
    file.write_text(json.dumps(content))
    keys.append(model_key(load(str(changed), device="cpu"), tuned=False))
    assert len(set(keys)) == len(keys) == 6


def test_rounded_weights_and_their_library_change_the_key(
    model: LanguageModel, store: StatsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, installed = "0.49", importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "bitsandbytes" else installed(name)
    )
    keys = [model_key(model, tuned=False)]
    for bits in (8, 4):
        monkeypatch.setattr(model.base, f"is_loaded_in_{bits}bit", True, raising=False)
        keys.append(model_key(model, tuned=False))
        monkeypatch.delattr(model.base, f"is_loaded_in_{bits}bit")
    monkeypatch.setattr(model.base, "is_loaded_in_4bit", True, raising=False)
    version = "0.50"
    keys.append(model_key(model, tuned=False))
    half = load(model.identity.id, device="cpu", dtype="bfloat16")
    monkeypatch.setattr(half.base, "is_loaded_in_4bit", True, raising=False)
    keys.append(model_key(half, tuned=False))
    assert len(set(keys)) == len(keys) == 5
    for asked, key in enumerate(keys):  # none finds what was read in another precision
        scorer = Counting()
        list(MemoizedScorer(scorer, again(store), key)([Prompt("x")]))
        assert len(scorer.asked) == 1, asked


def test_the_key_holds_across_processes_and_places(tiny: Path, tmp_path: Path, model: LanguageModel) -> None:
    moved = shutil.copytree(tiny, tmp_path / "moved")
    line = "import sys; from fsd.models.language_model import load; from fsd.scoring.cache import model_key; "
    line += "print(model_key(load(sys.argv[1], device='cpu'), tuned=False))"
    run = subprocess.run([sys.executable, "-c", line, str(moved)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == model_key(model, tuned=False)


def test_the_engines_version_changes_the_key(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    before = model_key(model, tuned=False)
    monkeypatch.setattr(module, "ENGINE", module.ENGINE + 1)
    assert model_key(model, tuned=False) != before


def test_a_model_without_a_fingerprint_has_no_key(model: LanguageModel) -> None:
    model.identity = BaseIdentity("pretrained", "", "")
    with pytest.raises(ValueError, match="must have a fingerprint"):
        model_key(model, tuned=False)


def test_prompts_with_half_characters_have_a_hash() -> None:
    assert prompt_hash(Prompt("\ud800")) != prompt_hash(Prompt("\ud801"))


# What may be wrong with the folder


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "header", "other"])
def test_a_damaged_shard_is_noticed_deleted_and_made_again(store: StatsCache, said: list[str], damage: str) -> None:
    expected = list(MemoizedScorer(Counting(), store, "k")(PROMPTS))
    file = shards(store)[0]
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    contents = {
        "flipped": bytes(raw),
        "cut": file.read_bytes()[:-4],
        "empty": b"",
        "header": file.read_bytes().replace(b'"rows": 3', b'"rows": 2'),
        "other": b"something else",
    }
    assert contents[damage] != file.read_bytes()
    file.write_bytes(contents[damage])
    scorer = Counting()
    assert same(list(MemoizedScorer(scorer, again(store), "k")(PROMPTS)), expected)
    assert len(scorer.asked) == 3
    assert len(said) == 1
    assert "\n" not in said[0]
    assert f"damaged file is left out and its texts are read again: {file}" in said[0]
    assert not file.exists()
    assert same(list(MemoizedScorer(scorer, again(store), "k")(PROMPTS)), expected)
    assert len(scorer.asked) == 3
    assert len(said) == 1


def test_a_folder_that_cannot_be_made_costs_one_line(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").touch()
    store = StatsCache(tmp_path / "file" / "cache", say=said.append)
    for _ in range(2):
        scorer = Counting()
        assert same(list(MemoizedScorer(scorer, store, "k")(PROMPTS)), list(Counting()(PROMPTS)))
        assert len(scorer.asked) == 3
    assert len(said) == 1
    assert said[0].startswith("cache: nothing more is kept, since")


def test_a_full_disk_costs_one_line_and_leaves_no_half_file(
    store: StatsCache, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    for i in range(2):
        list(MemoizedScorer(Counting(), store, "k")([Prompt(f"text {i}")]))
    assert len(said) == 1
    assert said[0].endswith("No space left on device")
    assert list(store.folder.rglob("*.*")) == []


def test_a_read_only_folder_is_still_read(store: StatsCache, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(MemoizedScorer(Counting(), store, "k")(PROMPTS))

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    for owner, name in ((os, "utime"), (Path, "write_bytes"), (Path, "mkdir"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, refuse)
    scorer = Counting()
    list(MemoizedScorer(scorer, again(store), "k")([*PROMPTS, Prompt("new")]))
    assert scorer.asked == [Prompt("new")]
    assert said == [f"cache: nothing more is kept, since {store.folder} cannot be written: Permission denied"]


def test_the_shards_used_longest_ago_go_first(store: StatsCache) -> None:
    for i in range(4):
        before = set(shards(store))
        store.keep("k", [(Prompt(f"text {i}"), next(Counting()([Prompt(f"text {i}")])))])
        (new,) = set(shards(store)) - before
        os.utime(new, (100 - i, 100 - i))
    small = StatsCache(store.folder, limit=3 * new.stat().st_size)
    small.keep("k", [(Prompt("text 9"), next(Counting()([Prompt("text 9")])))])
    assert len(shards(store)) == 3
    left = again(store).find("k", [Prompt(f"text {i}") for i in range(10)])
    assert set(left) == {Prompt("text 0"), Prompt("text 1"), Prompt("text 9")}


def test_reading_a_shard_makes_it_young(store: StatsCache) -> None:
    list(MemoizedScorer(Counting(), store, "k")(PROMPTS))
    os.utime(shards(store)[0], (1, 1))
    again(store).find("k", PROMPTS)
    assert shards(store)[0].stat().st_mtime > 1e9


def test_unfinished_files_of_dead_writers_are_swept(store: StatsCache) -> None:
    folder = store.folder / "k"
    folder.mkdir(parents=True)
    (folder / "old.tmp").touch()
    (folder / "young.tmp").touch()
    os.utime(folder / "old.tmp", (1, 1))
    list(MemoizedScorer(Counting(), store, "k")(PROMPTS))
    assert {f.name for f in folder.glob("*.tmp")} == {"young.tmp"}


def test_a_shard_that_exceeds_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = StatsCache(tmp_path, limit=100)
    list(MemoizedScorer(Counting(), store, "k")(PROMPTS))
    assert shards(store) == []


def test_a_limit_below_one_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1 byte; got 0"):
        StatsCache(tmp_path, limit=0)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from fsd.scoring.cache import MemoizedScorer, StatsCache
from fsd.token_stats import Prompt, TokenStats
def scorer(prompts):
    for p in prompts:
        n = np.arange(1.0, 1 + int(p.text))
        yield TokenStats(p.text, n.astype(np.int64), -n, -n, n)
store = StatsCache(Path(sys.argv[1]), limit=20_000)
for turn in range(30):
    prompts = [Prompt(str(1 + (turn * 7 + i) % 50)) for i in range(10)]
    for p, s in zip(prompts, MemoizedScorer(scorer, store, "k")(prompts), strict=True):
        assert s.token.size == int(p.text) and s.logp[-1] == -s.token.size
"""


def test_several_writers_at_once_never_damage_or_mix_up(store: StatsCache, said: list[str]) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.folder)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (0, "")
    found = again(store).find("k", [Prompt(str(i)) for i in range(1, 51)])
    assert found
    assert said == []
    assert all(stats.token.size == int(prompt.text) for prompt, stats in found.items())


def test_the_folder_is_the_users_unless_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FSD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "fsd"
    monkeypatch.setenv("FSD_CACHE", str(tmp_path / "here"))
    assert default_folder() == tmp_path / "here"
    assert StatsCache().folder == tmp_path / "here"
