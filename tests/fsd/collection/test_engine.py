"""Collecting: rows, manifest, dropped texts, interruption."""

import errno
import hashlib
import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from fsd.collection import domains, engine
from fsd.collection.domains import Domain
from fsd.collection.engine import CollectionSpec, PartialCollection, prepare
from fsd.collection.source import Window
from fsd.data.documents import Document
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.net.http import Clock

CLOCK = Clock(wall=lambda: 1_790_000_000.0)  # 21 September 2026
AFTER = Window(after=date(2023, 2, 28))


@pytest.fixture
def made(prose):
    """Gives the document of a number."""

    def make(number, day=date(2023, 3, 1), text=None, **more):
        values = {"group": f"g{number}", "origin_url": f"http://x/{number}"} | more
        return Document(text or prose(number), None, day, **values)

    return make


@pytest.fixture
def source(monkeypatch):
    """A domain whose pages are lists of documents, None being a crash; gives the pages asked for."""

    def start(*pages, first=date(2000, 1, 1), language="en"):
        requests = []

        def texts(window, journal, *, taste="", kinds=("a",)):
            for number in range(journal.cursor or 0, len(pages)):
                requests.append(number)
                for document in pages[number]:
                    if document is None:
                        raise KeyboardInterrupt
                    yield document
                journal.save(number + 1)

        monkeypatch.setattr(domains, "load", lambda name: Domain(name, texts, first, language))
        return requests

    return start


def run(out, limit=10, **changes):
    order = replace(CollectionSpec("made", AFTER, "en"), **changes)
    return prepare(order, limit, out, clock=CLOCK).run()


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_and_manifest(source, tmp_path, made, prose):
    source([made(1), made(2, date(2023, 3, 2), group="g1")], [made(3, date(2023, 3, 3))])
    out = tmp_path / "new" / "a.jsonl"
    collected = run(out, 2, because="that day")
    assert [list(row) for row in lines(out)] == [["text", "label", "date", "group", "source", "sha256", "period"]] * 2
    first = lines(out)[0]
    assert (first["label"], first["date"], first["group"], first["source"]) == (0, "2023-03-01", "g1", "http://x/1")
    assert first["sha256"] == hashlib.sha256(prose(1).encode()).hexdigest()
    manifest = json.loads((tmp_path / "new" / "a.manifest.json").read_text())
    assert manifest == collected.manifest
    assert manifest["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert (manifest["found"], manifest["kept"], manifest["groups"], manifest["dropped"]) == (2, 2, 1, {})
    assert (manifest["first_date"], manifest["last_date"]) == ("2023-03-01", "2023-03-02")
    assert manifest["finished"] == "2026-09-21T14:13:20+00:00"
    assert manifest["order"]["because"] == "that day"
    assert set(manifest["versions"]) == {"fsd", "python", "requests"}
    assert sorted(file.name for file in out.parent.iterdir()) == ["a.jsonl", "a.manifest.json"]
    assert read_files([out], labelled=True)[0].member is False
    source([made(1, group=""), made(2, group=""), made(3)])
    manifest = run(tmp_path / "members.jsonl", window=Window(before=date(2024, 1, 1))).manifest
    assert (manifest["label"], manifest["groups"]) == (1, 1)  # texts without a group are in none
    assert lines(tmp_path / "members.jsonl")[0]["label"] == 1


def test_a_benchmark_may_be_a_folder_and_is_hashed_as_it_was_read(source, tmp_path, made):
    folder = tmp_path / "benchmark"
    folder.mkdir()
    file = folder / "a.jsonl"
    file.write_text('{"text": "a b c"}\n')
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    source([made(1)])
    manifest = run(tmp_path / "a.jsonl", benchmark=(str(folder),)).manifest
    assert manifest["benchmark_sha256"] == {str(folder): expected}


def test_the_password_of_a_mirror_is_kept_nowhere(source, tmp_path, made):
    source([made(1)], [None])
    options = {"mirror": "https://me:secret@mirror.example/", "words": 7, "kinds": ("a",)}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.jsonl", options={"taste": options["mirror"]})
    assert "secret" not in (tmp_path / "a.jsonl.partial").read_text()
    order = CollectionSpec("made", AFTER, options=options).order
    assert order["options"] == {"mirror": "https://***@mirror.example/", "words": 7, "kinds": ["a"]}


def test_dropped_texts_are_counted_by_reason(source, tmp_path, made, prose):
    old, french = made(50), "Le chat et le chien de la maison sont dans une voiture qui est sur la route. " * 3
    words = prose(1).split()
    benchmark = tmp_path / "benchmark.jsonl"
    benchmark.write_text(json.dumps({"text": old.text}) + "\n" + json.dumps({"text": prose(51)}) + "\n")
    source(
        [
            made(1), made(1), made(2, None), made(3, date(2023, 2, 28)), made(4, text="the few words of a text"),
            made(5, text=french), made(6, text=" ".join([*words[:35], "new", "end"])), old,
            made(7, text=f"Well, {prose(51)}"), made(8), made(9, date(2027, 3, 1)), made(10, text=prose(1) + "\ud83d"),
        ]
    )  # fmt: skip
    collected = run(tmp_path / "a.jsonl", benchmark=(str(benchmark),))
    assert [d.group for d in collected.documents] == ["g1", "g8"]
    dropped = {
        "duplicate": 1, "no date": 1, "outside the dates": 1, "too short": 1, "not in en": 1, "near-duplicate": 1,
        "in the benchmark": 1, "near-duplicate of the benchmark": 1, "dated in the future": 1, "not valid Unicode": 1,
    }  # fmt: skip
    assert collected.manifest["dropped"] == dropped
    assert collected.manifest["found"] == 12 == 2 + sum(dropped.values())
    assert collected.manifest["source_ended"]
    assert len(collected.manifest["benchmark_sha256"][str(benchmark)]) == 64


def test_near_duplicates_are_replaced_by_further_texts(source, tmp_path, made, prose):
    source([made(n, text=f"{prose(0)} {n}") for n in range(5)], [made(n) for n in range(10, 20)])
    collected = run(tmp_path / "a.jsonl", 4)
    assert [d.group for d in collected.documents] == ["g0", "g10", "g11", "g12"]
    assert collected.manifest["dropped"]["near-duplicate"] == 4
    assert not collected.manifest["source_ended"]
    assert collected.manifest["found"] == 4 + sum(collected.manifest["dropped"].values())


def test_a_killed_run_resumes_and_equals_an_uninterrupted_one(source, tmp_path, made):
    pages = [[made(10 * page + n) for n in range(3)] + [made(10 * page)] for page in range(4)]
    source(*pages)
    whole = run(tmp_path / "whole.jsonl", 20)
    for page in range(4):
        for place in range(5):
            broken = [list(documents) for documents in pages]
            broken[page].insert(place, None)
            out = tmp_path / f"{page}{place}.jsonl"
            source(*broken)
            with pytest.raises(KeyboardInterrupt):
                run(out, 20)
            assert not out.exists()
            requests = source(*pages)
            resumed = run(out, 20)
            assert requests == list(range(page, 4))
            assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
            assert resumed.manifest == whole.manifest
    assert not list(tmp_path.glob("*.partial"))


def test_a_line_torn_by_the_kill_is_cut_off_and_a_kill_at_the_very_end_repaired(source, tmp_path, made):
    source([made(1)], [made(2), None])
    out, unfinished = tmp_path / "a.jsonl", tmp_path / "a.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        run(out)
    left = unfinished.read_bytes() + b'{"text": "half a li'
    unfinished.write_bytes(left)
    source([made(1)], [made(2)])
    run(out)
    before = out.read_bytes()
    unfinished.write_bytes(left)  # killed before it was removed
    run(out)
    assert out.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "a.manifest.json"]
    source([made(1), None])  # on the first page there is nothing to resume from
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "new" / "a.jsonl")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_full_disk_leaves_no_manifest_without_its_rows(source, tmp_path, made, monkeypatch):
    source([made(1)])
    write = Path.write_bytes

    def full(path, content):
        if path.suffix == ".jsonl":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path / "a.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl.partial"]


def test_two_runs_at_once_are_refused(source, tmp_path, made):
    source([made(1)])
    first = PartialCollection(tmp_path / "a.jsonl", {}, CLOCK)
    with pytest.raises(UsageError, match=r"a\.jsonl must be collected by one process at a time; another one is"):
        run(tmp_path / "a.jsonl")
    first.close()
    assert len(run(tmp_path / "a.jsonl").documents) == 1


def test_a_resumed_run_must_have_the_same_specification(source, tmp_path, made):
    source([made(1)], [None])
    out = tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(out)
    with pytest.raises(UsageError, match=r"partial must be of the same collection to resume; it has another min_words"):
        run(out, min_words=5)
    for content in ("{\n", "[1]\n", json.dumps({"text": "a row of an earlier version"}) + "\n"):
        (tmp_path / "a.jsonl.partial").write_text(content)
        with pytest.raises(UsageError, match="partial must be an unfinished collection of this command; delete it"):
            run(out)


def test_mistakes_are_found_before_any_request(source, tmp_path, made):
    requests, out = source([made(1)]), tmp_path / "a.jsonl"
    for window, message in (
        (Window(after=date(2026, 9, 21)), "after must be a day before today, 2026-09-21; got 2026-09-21"),
        (Window(after=date(1999, 12, 31)), "after must be a day of made, which begins on 2000-01-01"),
        (Window(before=date(2000, 1, 1)), "before must be a day of made, which begins on 2000-01-01"),
    ):
        with pytest.raises(UsageError, match=message):
            run(out, window=window)
    with pytest.raises(UsageError, match=r"data file must exist; there is no no\.jsonl"):
        run(out, benchmark=("no.jsonl",))
    with pytest.raises(UsageError, match=r"ends in \.jsonl; got .*a.csv"):
        run(tmp_path / "a.csv")
    with pytest.raises(UsageError, match=r"out must be in a folder that can be written to; /proc/x\.jsonl"):
        run(Path("/proc/x.jsonl"))
    assert not requests
    assert not list(tmp_path.iterdir())
    out.write_text("mine")
    for path, message in (
        (out / "b.jsonl", r"written to; .*: (Not a directory|File exists)"),
        (out, "does not exist yet"),
    ):
        with pytest.raises(UsageError, match=message):
            run(path)
    assert out.read_text() == "mine"


def test_an_empty_result_names_the_reasons_and_leaves_no_files(source, tmp_path, made):
    source([made(1, None), made(2, date(2020, 1, 1))])
    message = "made must have suitable texts published after 2023-02-28; of 2 found none is left: 1 no date, 1 outside"
    with pytest.raises(UsageError, match=message):
        run(tmp_path / "a.jsonl")
    assert not list(tmp_path.iterdir())
    source([])
    with pytest.raises(UsageError, match="of 0 found none is left: nothing"):
        run(tmp_path / "a.jsonl")


def test_a_collection_is_reused_only_for_the_same_order(source, tmp_path, made):
    requests = source([made(1)])
    out = tmp_path / "a.jsonl"
    collected = run(out, 5)
    requests.clear()
    assert run(out, 5) == collected
    assert not requests
    for limit, changes, content in ((6, {}, b""), (5, {"min_words": 3}, b""), (5, {}, b"\n")):
        out.write_bytes(out.read_bytes() + content)
        with pytest.raises(UsageError, match=r"does not exist yet; .* exists"):
            run(out, limit, **changes)
    out.with_suffix(".manifest.json").write_text("half")
    with pytest.raises(UsageError, match=r"a\.manifest\.json must be the manifest of a collection; "):
        run(out, 5)


def test_a_specification_that_nothing_meets_ends_and_can_go_on(source, tmp_path, made, monkeypatch, capsys):
    monkeypatch.setattr(engine, "BARREN", 20)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # bars are for terminals
    pages = [[made(10 * page + n, text="too short") for n in range(10)] for page in range(6)]
    requests = source(*pages)
    out = tmp_path / "a.jsonl"
    message = r"none of the last 20 was kept \(dropped in all: 20 too short\): change .* run the same command again"
    with pytest.raises(UsageError, match=message):
        prepare(CollectionSpec("made", AFTER, "en"), 10, out, clock=CLOCK).run()
    assert "20 found, 20 dropped" in capsys.readouterr().err
    assert requests == [0, 1]
    with pytest.raises(UsageError, match=r"none of the last 20 was kept \(dropped in all: 40 too short\)"):
        run(out)
    assert requests == [0, 1, 2, 3]
    source([made(1), *pages[0][1:]], [*pages[1][:9], made(2)], *pages[2:3])
    assert run(tmp_path / "b.jsonl").manifest["kept"] == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [("ก" * 59, "too short"), ("山" * 59, "too short"), ("ก" * 60, "not in en"), ("물 불 " * 15, "not in en")],
)
def test_two_signs_of_a_script_without_spaces_count_as_one_word(text, reason, source, tmp_path, made):
    source([made(1, text=text)])
    with pytest.raises(UsageError, match=f"1 {reason}"):
        run(tmp_path / "a.jsonl", min_words=30)
