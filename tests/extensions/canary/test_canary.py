"""The commands `make` and `test`: what is written, what is checked, and what a model that read the canaries shows."""

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extensions.canary import files, make
from extensions.canary import rank as scoring
from extensions.canary.rank import prepare as rank
from extensions.canary.settings import MakeConfig, RankConfig
from fsd.config import DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.errors import UsageError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "documents.jsonl"
    texts = [document.text for document in corpus()]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:12]))
    (path.parent / "words.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def making(data: Path, out: Path, **settings: object) -> MakeConfig:
    defaults = {"variants": 20, "length": 5, "alpha": 0.05, "seed": "s", "words": (str(data.parent / "words.jsonl"),)}
    return MakeConfig((str(data),), str(out), **{**defaults, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("canaries") / "c"
    make.prepare(making(data, out, repetitions=(1, 2))).run()
    return out


def test_the_folder_holds_what_is_published_and_what_is_sealed(folder: Path, data: Path) -> None:
    rows = [json.loads(line) for line in (folder / "published.jsonl").read_text().splitlines()]
    documents = [json.loads(line)["text"] for line in data.read_text().splitlines()]
    sealed = (folder / "sealed.json").read_text()

    assert len(rows) == 6 * 1 + 6 * 2
    assert all(any(row["text"].startswith(f"{text}\n\n") for text in documents) for row in rows)
    assert (folder / "commitment.txt").read_text().split()[1] == hashlib.sha256(sealed.encode()).hexdigest()
    assert sorted(path.name for path in folder.iterdir()) == ["commitment.txt", "published.jsonl", "sealed.json"]
    assert list(folder.parent.glob(".fsd-*")) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "sealed.json").stat().st_mode & 0o777 == 0o600


def test_the_same_seed_makes_the_same_folder_and_no_seed_another(folder: Path, data: Path, tmp_path: Path) -> None:
    make.prepare(making(data, tmp_path / "again", repetitions=(1, 2))).run()
    assert (tmp_path / "again/published.jsonl").read_bytes() == (folder / "published.jsonl").read_bytes()
    for name, seed in (("s", "s"), ("t", "t"), ("a", None), ("b", None)):
        make.prepare(making(data, tmp_path / name, repetitions=(1, 2), seed=seed)).run()
    sealed = [(tmp_path / name / "sealed.json").read_bytes() for name in ("s", "t", "a", "b")]
    assert len(set(sealed)) == 4
    assert sealed[0] == (folder / "sealed.json").read_bytes()


def test_a_novel_is_one_document(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    novel = tmp_path / "novel.txt"
    novel.write_text("\n\n".join(document.text for document in corpus()))
    make.prepare(MakeConfig((str(novel),), str(tmp_path / "out"))).run()
    (row,) = (tmp_path / "out" / "published.jsonl").read_text().splitlines()
    text, _, canary = json.loads(row)["text"].rpartition("\n\n")
    assert text == novel.read_text().strip()
    assert len(set(canary.split())) == 8
    assert "--kind paraphrase" in capsys.readouterr().out


def test_documents_with_every_line_separator(data: Path, tmp_path: Path) -> None:
    texts = [f"text {at} with{chr(code)}a break" for at, code in enumerate((0x85, 0x2028, 0x2029, 0x0B, 0x0C, 0x1C))]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"text": f"{text}\r\n"}) + "\n" for text in texts))
    config = making(data, tmp_path / "c")

    make.prepare(replace(config, data=(str(tmp_path / "d.jsonl"),))).run()

    assert list(files.read(tmp_path / "c").contexts.values()) == [f"{text}\r\n\n\n" for text in texts]


def test_what_make_cannot_read_back_is_not_written(data: Path, tmp_path: Path) -> None:
    sealed, published = make.draw(making(data, tmp_path / "c"))
    with pytest.raises(UsageError, match="document 000001 differs"):
        files.write(tmp_path / "c", sealed, dict.fromkeys(published, "x"))
    assert not (tmp_path / "c").exists()


def test_published_canaries_are_no_documents_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes((folder / "published.jsonl").read_bytes())
    with pytest.raises(UsageError, match=r"before their publication; .*mine\.jsonl holds canaries already"):
        make.draw(MakeConfig((str(tmp_path),), str(tmp_path / "c")))


def test_words_of_one_length_in_tokens(data: Path, tmp_path: Path) -> None:
    from fsd.models.language_model import load_tokenizer

    make.prepare(making(data, tmp_path / "c", tokenizer="embedded")).run()
    sealed = files.read(tmp_path / "c").sealed
    tokenizer, _ = load_tokenizer("embedded")

    sizes = {len(tokenizer(f" {canary}")["input_ids"]) for canary in sealed.candidates(sealed.documents[0])}
    assert len(sizes) == 1


def test_a_folder_is_never_replaced(folder: Path, data: Path) -> None:
    with pytest.raises(UsageError, match="out must be a folder that does not exist or is empty"):
        make.prepare(making(data, folder)).run()


def altered(text: str) -> str:
    """The first line with another text."""
    line = text.split("\n", 1)[0]
    return json.dumps(json.loads(line) | {"text": "another"}) + "\n"


def corrupted(folder: Path, to: Path, name: str, change: Callable[[str], str]) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        content = path.read_text()
        (to / path.name).write_text(change(content) if path.name == name else content)
    return to


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sealed.json", lambda text: text.replace('"published": ', '"published": 1', 1), "must match its commitment"),
        ("commitment.txt", lambda _: "", "committed is none"),
        ("published.jsonl", lambda text: text + '{"id": "x", "text": "y"}\n', "document x is not among them"),
        ("published.jsonl", lambda text: altered(text) + text, "document 000001 differs"),
        ("published.jsonl", lambda text: text + '{"id": "000001", "text": "\\ud800"}\n', "document 000001 differs"),
        ("published.jsonl", lambda text: text.splitlines()[0] + "\n", "is missing"),
        ("published.jsonl", lambda text: text[:-3], "must be one JSON object a line"),
    ],
)
def test_a_folder_that_was_changed_is_refused(folder, tmp_path, name, change, message) -> None:
    with pytest.raises(UsageError, match=message):
        files.read(corrupted(folder, tmp_path / "c", name, change))


@pytest.mark.parametrize("change", [lambda text: f"\ufeff{text}", str.upper])
def test_a_commitment_that_an_editor_or_a_tool_wrote(folder, tmp_path, change) -> None:
    assert files.read(corrupted(folder, tmp_path / "c", "commitment.txt", change)) == files.read(folder)


FIELDS = {
    "version": (2, "version: input should be 3; got 2"),
    "kind": ("letters", "kind: input should be 'words', 'digits' or 'paraphrase'; got 'letters'"),
    "documents": ([], "documents: value should have at least 1 item"),
    "documents.0.id": ("000002", "documents must have different ids"),
    "documents.0.sha256": ("ab12", "published must be"),
    "documents.1.variants": (["a", "b"], "variants must be listed for paraphrases alone; document 000002 differs"),
}
SEVERAL = {
    "version": 9,
    "scheme.variants": 10**9,
    "scheme.length": 0,
    "documents.0.published": 999,
    "documents.0.repetitions": 0,
}


def test_a_wrong_field_of_a_list_that_fits_its_commitment(folder: Path, tmp_path: Path) -> None:
    cases = [(field, value, message) for field, (value, message) in FIELDS.items()]
    cases += [(field, value, field.rpartition(".")[2]) for field, value in SEVERAL.items()]
    for at, (field, value, message) in enumerate(cases):
        content = json.loads((folder / "sealed.json").read_text())
        *way, last = (int(part) if part.isdigit() else part for part in field.split("."))
        reduce(operator.getitem, way, content)[last] = value
        changed = json.dumps(content)
        out = corrupted(folder, tmp_path / str(at), "sealed.json", lambda _, changed=changed: changed)
        (out / "commitment.txt").write_text(f"sha256 {hashlib.sha256(changed.encode()).hexdigest()}\n")

        with pytest.raises(UsageError, match=f"must be a sealed list of version 3; .*{re.escape(message)}"):
            files.read(out)


def test_resolution(folder: Path) -> None:
    canaries = files.read(folder)

    scoring.check_resolution(canaries, 0.05, None)
    scoring.check_resolution(canaries, 1 / 11, 10)
    with pytest.raises(UsageError, match="at least 1/11"):
        scoring.check_resolution(canaries, 0.05, 10)
    with pytest.raises(UsageError, match="between 0 and 1"):
        scoring.check_resolution(canaries, math.nan, None)


def test_rank_tests_by_hand() -> None:
    """Of three documents with 20 variants each the published one is highest, second and lowest."""
    rows = [
        {"document": document, "repetitions": 1, "published": at == 0, "loss": float(rank if at == 0 else at)}
        for document, rank in (("a", 99), ("b", 18.5), ("c", 0))
        for at in range(20)
    ]
    scores = pd.DataFrame(rows).assign(zlib=lambda table: -table["loss"])
    found = scoring.rank_tests(scores, ["loss", "zlib"], alpha=0.05).set_index("detector")
    assert found["found"].tolist() == pytest.approx([1 / 3, 1 / 3])  # 1 / 20 is exactly alpha
    assert found["median_p"].tolist() == pytest.approx([2 / 20, 19 / 20])
    lower, higher = found["p"].min(), found["p"].max()
    assert found["p_holm"].tolist() == pytest.approx([2 * lower, max(2 * lower, higher)])


def test_the_variants_that_are_scored_are_counted(folder: Path, tiny: Path) -> None:
    model = ModelConfig(model=str(tiny))
    for withheld, each in ((None, 20), (4, 5), (19, 20), (50, 20)):
        alpha = 0.2 if withheld == 4 else 0.05
        job = rank(RankConfig(folder=str(folder), model=model, withheld=withheld, alpha=alpha))
        assert job.passes == {"base": 12 * each}


def test_another_tokenizer_is_refused(data: Path, tmp_path: Path, tiny: Path) -> None:
    make.prepare(making(data, tmp_path / "c", tokenizer="embedded")).run()

    with pytest.raises(UsageError, match="must have the tokenizer that the canaries were made for"):
        rank(RankConfig(folder=str(tmp_path / "c"), model=ModelConfig(model=str(tiny)))).run()


def test_detectors_that_read_more_than_the_canary_are_refused(folder: Path, tiny: Path) -> None:
    config = RankConfig(folder=str(folder), model=ModelConfig(model=str(tiny)), detection=DetectorConfig("recall"))
    with pytest.raises(UsageError, match="recall cannot be computed on canaries"):
        rank(config).run()


@pytest.mark.slow
def test_a_model_that_read_them(data: Path, tmp_path: Path) -> None:
    """Trained on what was published, the model prefers it; the sealed list is what decides."""
    from fsd.config import Recipe
    from fsd.models import language_model
    from fsd.models.pretraining import continue_pretraining
    from fsd.scoring.model import open_model
    from pipelines.experiment.detector_settings import load_detectors

    make.prepare(making(data, tmp_path / "c", repetitions=(8,))).run()
    canaries = files.read(tmp_path / "c")
    published = [json.loads(line)["text"] for line in (tmp_path / "c/published.jsonl").read_text().splitlines()]
    model = language_model.load(ModelConfig(cache="none"))
    continue_pretraining(
        model, [text[-400:] for text in published], Recipe(batch_size=4, learning_rate=3e-3), bar_shown=False
    )

    detectors = load_detectors(DetectorConfig(detectors="loss"))
    scorers = open_model(ModelConfig(cache="none"), local=model).scorers
    table = scoring.score(canaries, detectors, scorers)
    (level,) = scoring.rank_tests(table, ["loss"], alpha=0.05).itertuples()
    assert level.p < 0.001
    assert level.found_low > 0.05
    moved = table.assign(published=table.groupby("document")["published"].transform(lambda flags: np.roll(flags, 1)))
    (other,) = scoring.rank_tests(moved, ["loss"], alpha=0.05).itertuples()
    assert other.p > 0.01


def test_paraphrases(tmp_path: Path, tiny: Path) -> None:
    rows = [{"variants": [f"text {at} says {word} today" for word in ("one", "two", "three")]} for at in range(8)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make.prepare(MakeConfig((str(tmp_path / "p.jsonl"),), str(tmp_path / "c"), kind="paraphrase", seed="s")).run()

    canaries = files.read(tmp_path / "c")

    assert [canaries.sealed.candidates(entry) for entry in canaries.sealed.documents] == [r["variants"] for r in rows]
    assert set(canaries.contexts.values()) == {""}
    scoring.check_resolution(canaries, 0.001, None)
    with pytest.raises(UsageError, match="alpha must be at least 0\\.00015"):
        scoring.check_resolution(canaries, 0.0001, None)
