import bz2
import csv
import gzip
import io
import json
import os
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from extensions.shards.files import files_at
from fsd.data import cells, formats
from fsd.data.cells import RowError
from fsd.data.documents import Document
from fsd.data.fields import parse_columns
from fsd.data.passages import TextStream
from fsd.data.readers import files_of_texts, read_files, read_rows, read_texts
from fsd.errors import UsageError

ROWS: list[dict[str, Any]] = [
    {"text": 'one, "two"\nthree', "label": 1, "group": "g", "date": "2023-01-31", "more": 1},
    {"text": "vier\u2028fünf", "label": 0, "group": None, "date": None, "more": 2},
]


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(rows, delimiter=","):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def parquet(rows):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


CONTENTS: dict[str, str | bytes] = {
    "a.jsonl": "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS),
    "a.json": json.dumps(ROWS, indent=1),
    "a.ndjson": "\n".join(json.dumps(row) for row in ROWS),
    "b.json": "\ufeff" + "\r\n".join(json.dumps(row) for row in ROWS) + "\r\n",
    "a.csv": table(ROWS),
    "bom.CSV": b"\xef\xbb\xbf" + table(ROWS).encode(),
    "a.tsv": table(ROWS, "\t"),
    "a.parquet": parquet(ROWS),
    "semicolons.csv": table(ROWS, ";"),
    "a.jsonl.gz": gzip.compress("\n".join(json.dumps(row) for row in ROWS).encode(), mtime=0),
    "a.csv.zst": zstandard.ZstdCompressor().compress(table(ROWS).encode()),
    "a.tsv.BZ2": bz2.compress(table(ROWS, "\t").encode()),
}


LINES = {
    "a.jsonl": ["1", "3"], "a.json": ["1", "2"], "a.ndjson": ["1", "2"], "b.json": ["1", "2"], "a.csv": ["2", "4"],
    "bom.CSV": ["2", "4"], "a.tsv": ["2", "4"], "a.parquet": ["1", "2"], "semicolons.csv": ["2", "4"],
    "a.jsonl.gz": ["1", "2"], "a.csv.zst": ["2", "4"], "a.tsv.BZ2": ["2", "4"],
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_gives_the_same_documents_and_the_lines_where_they_begin(tmp_path, name):
    path = write(tmp_path / name, CONTENTS[name])
    found = [(d.text, d.member, d.date, d.group, d.origin_url) for d in read_files([path], labelled=True)]
    first, second = (f"{path}:{line}" for line in LINES[name])
    assert found == [
        ('one, "two"\nthree', True, date(2023, 1, 31), "g", first), ("vier\u2028fünf", False, None, "", second),
    ]  # fmt: skip


def test_several_files_are_one_benchmark(tmp_path):
    paths = [write(tmp_path / name, CONTENTS[name]) for name in ("a.jsonl", "a.csv")]
    found = [Path(d.origin_url).name for d in read_files(map(str, paths))]
    assert found == ["a.jsonl:1", "a.jsonl:3", "a.csv:2", "a.csv:4"]


def test_named_columns_and_names_of_known_benchmarks(tmp_path):
    path = write(tmp_path / "a.csv", "ID,Example_A,Label\n7,some words,1\n")
    assert parse_columns("") == {}
    columns = parse_columns("text=Example_A, label=Label,group=ID")
    assert read_files([path], columns) == [Document("some words", True, None, "7", f"{path}:2")]
    book = write(tmp_path / "b.jsonl", '{"snippet": "a b", "label": 0, "book_id": 12}')
    assert read_files([book]) == [Document("a b", False, None, "12", f"{book}:1")]


def test_a_template_joins_columns(tmp_path):
    path = write(tmp_path / "a.csv", 'question,the answer,n\n"who, me?",you\\n,1\nwhy?,so,2\n')
    columns = parse_columns(r"text=Q: {question}, A:\n{the answer} ({n}),group=n")
    assert columns == {"text": r"Q: {question}, A:\n{the answer} ({n})", "group": "n"}
    read = [(document.text, document.group) for document in read_files([path], columns)]
    # the break is that of the template; what a cell holds is kept
    assert read == [("Q: who, me?, A:\nyou\\n (1)", "1"), ("Q: why?, A:\nso (2)", "2")]
    rows = [{"a": "x {b}", "b": 2, "prompt": "p"}, {"a": "y", "b": 2.5, "prompt": "q"}]
    numbers = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    columns = parse_columns("text={a} {b},context={prompt}:", answers=True)
    read = [(document.text, document.context) for document in read_files([numbers], columns, contexts=True)]
    assert read == [("x {b} 2", "p:"), ("y 2.5", "q:")]
    assert [passage.text for passage in TextStream([numbers], "{a}-{b}")] == ["x {b}-2", "y-2.5"]
    lists = write(tmp_path / "c.jsonl", '{"q": "who?", "choices": ["me", "you"]}\n{"q": "why?", "choices": []}\n')
    read = [document.text for document in read_files([lists], parse_columns("text={q} {choices}"))]
    assert read == ["who? me you", "why? "]
    # a column whose own name has braces is that column
    braces = write(tmp_path / "b.csv", "{a},a\none,two\n")
    assert read_files([braces], parse_columns("text={a}"))[0].text == "one"


def test_a_template_that_does_not_fit_the_file_is_refused(tmp_path):
    rows = [
        {"question": "who?", "answer": "me", "choices": ["a", 1]},
        {"question": "why?", "answer": " ", "choices": []},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    missing = "a.jsonl:1: the template of text must name columns of the file; it has no 'reply'; columns are question, "
    with pytest.raises(UsageError, match=missing):
        read_files([path], parse_columns("text={question} {reply}"))
    with pytest.raises(UsageError, match="the template of column must name columns of the file; it has no 'reply'"):
        list(TextStream([path], "{question} {reply}"))
    with pytest.raises(UsageError, match="column 'choices' must be a string that is not blank; got "):
        read_files([path], parse_columns("text={question} {choices}"))
    joined = parse_columns("text={question} {answer}")
    # A column may be empty in some rows, as the input of Alpaca is; but not all of a template.
    assert [document.text for document in read_files([path], joined)] == ["who? me", "why? "]
    assert [passage.text for passage in TextStream([path], "{question} {answer}")] == ["who? me", "why? "]
    path.write_text(path.read_text() + '{"question": null}\n')
    with pytest.raises(RowError, match=r"a\.jsonl:3: the columns of the template of text must not all be empty"):
        read_files([path], joined)
    skipped = Counter()
    assert len(read_files([path], joined, skipped=skipped)) == 2
    assert skipped == {"blank text": 1}
    for spec in ("text={question", "text={} x", "text={{question}}", "text=question}"):
        with pytest.raises(UsageError, match="must have each column of a template in braces"):
            parse_columns(spec)
    with pytest.raises(UsageError, match="must have each column of a template in braces"):
        TextStream([path], "{question")
    with pytest.raises(UsageError, match=r"columns may be joined by a template for .*; got label="):
        parse_columns("label={a}{b}")
    with pytest.raises(UsageError, match="columns must be written"):
        parse_columns("text=question,answer")


def test_line_ends_inside_a_cell_and_long_cells_are_kept(tmp_path):
    (found,) = read_files([write(tmp_path / "a.csv", 'text,label\r\n"a\r\n' + "word " * 50_000 + '",1\r\n')])
    assert found.text == "a\r\n" + "word " * 50_000


def values(tmp_path, field, given):
    return read_files([write(tmp_path / "a.jsonl", json.dumps({"text": "x", field: given}))])[0]


def test_labels(tmp_path):
    for label in (1, 1.0, True, "1", "True", "1.0"):
        assert values(tmp_path, "label", label).member is True
    for label in (0, 0.0, False, "0", "false"):
        assert values(tmp_path, "label", label).member is False
    assert values(tmp_path, "label", None).member is None


def test_dates(tmp_path):
    days = ["2023-01-31", "2023-01-31T10:00:00Z", "2023-01-31 (revised)", "2023-01-31 23:30:00", 20230131, "20230131",
            20230131.0, "2023-02-01T00:30:00+09:00", "2023-01-30T23:30-08:00"]  # fmt: skip
    assert {values(tmp_path, "date", day).date for day in days} == {date(2023, 1, 31)}
    assert {values(tmp_path, "date", day).date for day in (float("nan"), 0, "0", None)} == {None}
    stamp = datetime.fromisoformat("2024-01-06T00:30:00+09:00")
    stamps = pa.array([stamp], pa.timestamp("us", tz="Asia/Tokyo"))
    for column, day in (([date(2023, 1, 31)], date(2023, 1, 31)), (stamps, date(2024, 1, 5))):
        pq.write_table(pa.table({"text": ["x"], "date": column}), tmp_path / "a.parquet")
        assert read_files([tmp_path / "a.parquet"])[0].date == day


def test_a_number_is_one_group_in_every_notation_and_nan_is_none(tmp_path):
    cases = [(5, "5"), (5.0, "5"), ("5", "5"), ("5.0", "5"), (" book ", "book"), (2.5, "2.5"), ("v1.0", "v1.0"),
             (float("nan"), ""), (None, "")]  # fmt: skip
    assert [values(tmp_path, "group", group).group for group, _ in cases] == [expected for _, expected in cases]
    for group, expected in ((5.0, "5"), (float("nan"), "")):
        path = write(tmp_path / "a.parquet", parquet([{"text": "x", "group": group}]))
        assert read_files([path])[0].group == expected


def test_rows_without_text_or_label_are_refused_or_skipped_and_counted(tmp_path):
    rows = [
        {"text": "a", "label": 1}, {"text": " ", "label": 0}, {"text": None, "label": 0}, {"text": float("nan")},
        {"text": "b", "label": 2}, {"text": "c", "label": None}, {"text": "d", "label": float("nan")},
        {"text": "e", "label": ""}, {"text": "f", "label": 0},
    ]  # fmt: skip
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(RowError, match=r"a\.jsonl:2: text must be a string that is not blank; got ' '"):
        read_files([path], labelled=True)
    skipped = Counter[str]()
    kept = read_files([path], labelled=True, skipped=skipped)
    assert [(d.text, d.member, d.origin_url) for d in kept] == [("a", True, f"{path}:1"), ("f", False, f"{path}:9")]
    assert skipped == {"blank text": 3, "label neither 0 nor 1": 1, "no label": 3}
    skipped.clear()
    # NaN is what pandas writes for a missing label.
    assert [d.text for d in read_files([path], skipped=skipped)] == ["a", "c", "d", "e", "f"]
    write(path, '{"text": 5, "label": 1}')
    with pytest.raises(UsageError, match="text must be a string that is not blank; got 5"):
        read_files([path], skipped=skipped)
    write(path, '{"text": " ", "label": 1}\n{"text": "a", "label": 7}')
    with pytest.raises(UsageError, match="must have at least one valid row; all 2 have no text or no label of 0 or 1"):
        read_files([path], skipped=Counter())


def test_texts_are_rows_files_and_folders_of_text_files(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "b.txt", "\ufeffthe b\n")
    write(tmp_path / "sub" / "c.txt", " ")
    data = write(tmp_path / "a.csv", "text,label\nthe a,1\n")
    skipped = Counter[str]()
    assert [d.text for d in read_texts([data, tmp_path / "sub"], skipped=skipped)] == ["the a", "the b"]
    assert skipped == {"blank text": 1}
    with pytest.raises(RowError, match=r"c\.txt must hold a text that is not blank"):
        read_texts([tmp_path / "sub"])


GOOD = b'{"text": "x", "label": 1}\n'
# beside the many of docs/bad_input.tsv
BAD: list[tuple[str, str | bytes, str]] = [
    ("a.json", '[{"text": "x"},\n{"text": }]', ":2: must be one JSON object a line"),
    *(
        ("a.jsonl", f'{{"text": "x", "date": {day}}}', ":1: date must begin as year-month-day, like 2023-01-31; got ")
        for day in ("20241310", '"2023"', '"2023-01-311"', "true")
    ),
    ("a.csv", "text,label\nx,1\ny\n", ":3: a row must have 2 fields like the header; got 1"),
    ("a.csv", "text,label\nx,1\ncafé,1\n".encode("latin-1"), ":3: must be encoded in UTF-8; byte 0xe9 at position 3"),
    ("a.jsonl.gz", gzip.compress(b"{}" * 9999, mtime=0)[:-20], "a.jsonl.gz must be a whole gzip file; "),
    ("a.parquet.gz", "x", "data file must end in .jsonl, .ndjson, .json, .csv, .tsv, .parquet, all but .parquet"),
]


@pytest.mark.parametrize(("name", "content", "says"), BAD)
def test_bad_files(tmp_path, name, content, says):
    with pytest.raises(UsageError, match=says) as error:
        read_files([write(tmp_path / name, content)])
    assert "\n" not in str(error.value)


def test_decimal_labels(tmp_path):
    path = write(tmp_path / "a.parquet", parquet([{"text": "x", "label": Decimal(f"{n}.0")} for n in (0, 1)]))
    assert [document.member for document in read_files([path], labelled=True)] == [False, True]


def test_a_text_that_no_machine_could_score_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "LONGEST", 9)
    for name, content in (("a.jsonl", '{"text": "ten signs!"}'), ("a.txt", "ten signs!")):
        with pytest.raises(UsageError, match=f"{name}.* must .*10"):
            read_texts([write(tmp_path / name, content)])
    assert len(read_files([write(tmp_path / "b.jsonl", '{"text": "no signs."}')])) == 1


COLUMNS_BEYOND_PYTHON = {
    "timestamp": pa.array([253_402_300_800 * 10**6], pa.timestamp("us")),
    "date32": pa.array([3 * 10**6], pa.date32()),
    "duration": pa.array([3 * 10**15], pa.duration("s")),
    "string": pa.array([b"a \xff"], pa.binary()).view(pa.string()),
}


@pytest.mark.parametrize("kind", COLUMNS_BEYOND_PYTHON)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_value_that_python_cannot_hold_is_refused(kind, ending, tmp_path):
    table = pa.table({"text": ["a b"], "when": COLUMNS_BEYOND_PYTHON[kind]})
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    with pytest.raises(UsageError, match=r"must be an? (Parquet|Arrow) file"):
        read_rows([path])


@pytest.mark.parametrize("name", ["bomb.jsonl.gz", "bomb.csv.zst", "bomb.parquet"])
def test_a_file_that_expands_without_end_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(formats, "LARGEST", 2**22)
    file, text = tmp_path / name, "a" * 2**23
    if name == "bomb.parquet":
        pq.write_table(pa.table({"text": [text[: 2**13]] * 2**10}), file, compression="zstd")
    else:
        with pa.CompressedOutputStream(str(file), "gzip" if name.endswith("gz") else "zstd") as stream:
            stream.write(text.encode())
    assert file.stat().st_size < 2**17
    with pytest.raises(UsageError, match="must hold at most 4,194,304 bytes when it is decompressed; there are more"):
        read_files([file])


def test_named_columns_must_be_there_and_labels_where_needed(tmp_path):
    path = write(tmp_path / "a.jsonl", GOOD + b'{"text": "y", "label": null}\n')
    assert [d.member for d in read_files([path])] == [True, None]
    with pytest.raises(UsageError, match=r":2: label must be 1 .* there is none"):
        read_files([path], labelled=True)
    with pytest.raises(UsageError, match=":1: group must be in column 'ID'; columns are text, label"):
        read_files([path], {"group": "ID"})


def test_a_folder_stands_for_its_shards(tmp_path):
    for number, name in enumerate(("a.jsonl", "b.jsonl", "deep/c.jsonl")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, f'{{"text": "text {number}", "label": 0}}\n')
    for read in (read_files, read_texts):
        documents = read([tmp_path])
        assert [document.text for document in documents] == ["text 0", "text 1", "text 2"]
        assert documents[2].origin_url == f"{tmp_path}/deep/c.jsonl:1"
    assert [file.name for file in files_of_texts(tmp_path)] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    write(tmp_path / "README.txt", "not a text")
    with pytest.raises(UsageError, match=r"or data files alone; \S+ has README.txt and a.jsonl"):
        read_texts([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"a folder of data must hold files that end in .*; \S+empty has none"):
        read_files([tmp_path / "empty"])


def test_a_saved_data_set_is_read_and_one_of_its_splits_chosen(tmp_path):
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(5)]
    dataset = datasets.Dataset.from_list(rows)
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / "cache-1234.arrow", "no data")  # what `datasets` may leave there
    dataset.save_to_disk(str(tmp_path / "one"))  # an earlier saving, of which a later one keeps the files
    dataset.select([3, 1, 2]).save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert len(list((tmp_path / "one").glob("data-*.arrow"))) == 3
    for read in (read_files, read_texts):
        read_rows = read([tmp_path / "one"])
        assert [(document.text, document.member) for document in read_rows] == [
            ("text 3", True),
            ("text 1", True),
            ("text 2", False),
        ]
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(UsageError, match=r"one split of a saved data set; \S+two holds test, train: give \S+two/test"):
        read_files([tmp_path / "two"])
    assert len(read_files([tmp_path / "two" / "train"])) == 5
    for content, message in (
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "data file must exist"),
        ('{"_data_files": [{}]}', "must list the files of a saved data set"),
        ("[]", "must be the state of a saved data set"),
        ('{"_data_files": [{"filename": "cache-1234.arrow"}]}', "must be an Arrow file of a saved data set"),
    ):
        write(tmp_path / "one" / "state.json", content)
        with pytest.raises(UsageError, match=message):
            read_files([tmp_path / "one"])


def test_a_folder_of_tables_may_have_a_state(tmp_path):
    """One that some other program keeps there."""
    write(tmp_path / "state.json", json.dumps([{"text": "a b"}]))
    write(tmp_path / "a.jsonl", '{"text": "c d"}')
    assert [document.text for document in read_files([tmp_path])] == ["c d", "a b"]


def test_a_group_may_be_a_decimal_number(tmp_path):
    table = pa.table({"text": ["a b", "c d"], "group": [Decimal("17"), Decimal("17.00")]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [document.group for document in read_files([tmp_path / "a.parquet"])] == ["17", "17"]


def test_a_hub_id_is_told_how_to_become_a_file():
    with pytest.raises(UsageError, match=r"load_dataset\('owner/name', split='train'\).to_json\('data.jsonl'\)"):
        read_files(["owner/name"])
    for place in ("owner/name.jsonl", "../name"):
        with pytest.raises(UsageError, match=rf"there is no {place}$"):
            read_files([place])


def test_a_link_to_a_file_is_read_wherever_it_stands(tmp_path):
    (tmp_path / "elsewhere.jsonl").write_text('{"text": "a b"}')
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to("../elsewhere.jsonl")
    (file,) = files_at(str(folder), [".jsonl"])
    assert Path(file.url).name == "link.jsonl"
    # The file may change while the link stays.
    places = [str(folder), f"{folder}/*", f"{folder}/link.jsonl"]
    before = [files_at(place, [".jsonl"]) for place in places]
    os.utime(tmp_path / "elsewhere.jsonl", (1, 1))
    for place, files in zip(places, before, strict=True):
        assert files_at(place, [".jsonl"]) != files


def test_a_folder_is_read_whole_and_each_of_its_files_once(tmp_path):
    folder = tmp_path / "texts"
    linked = tmp_path / "elsewhere"
    for place in (folder, linked):
        place.mkdir()
    (folder / "a.txt").write_text("one")
    (folder / "B.TXT").write_text("two")
    (linked / "c.txt").write_text("three")
    (folder / "latest.txt").symlink_to("a.txt")
    (folder / "part").symlink_to(linked)
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "a-checkpoint.txt").write_text("one")
    assert {document.text for document in read_texts([folder])} == {"one", "two", "three"}
    assert len(read_texts([folder])) == len(list(TextStream([folder]))) == len(files_at(str(folder), [".txt"])) == 3


def test_a_folder_below_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def closed(folder, onerror, **_):
        onerror(PermissionError(13, "Permission denied", f"{folder}/closed"))
        return []

    monkeypatch.setattr(os, "walk", closed)
    with pytest.raises(UsageError, match=r"a folder must be one that can be read; \S+/closed: Permission denied"):
        read_texts([tmp_path])


@pytest.mark.parametrize("read", [read_texts, read_files])
def test_a_file_is_given_once(tmp_path, read):
    folder = tmp_path / "texts"
    folder.mkdir()
    file = folder / "a.jsonl"
    file.write_text('{"text": "a b"}')
    (tmp_path / "link.jsonl").symlink_to(file)
    for paths in ([file, file], [folder, folder], [file, tmp_path / "link.jsonl"]):
        with pytest.raises(UsageError, match="each data file must be given once; got "):
            read(paths)


@pytest.mark.parametrize("pack", [gzip.compress, lambda content: b"PK\x03\x04" + content])
def test_a_packed_file_under_a_plain_name_is_called_packed(tmp_path, pack):
    file = tmp_path / "a.jsonl"
    file.write_bytes(pack(b'{"text": "a b"}'))
    with pytest.raises(UsageError, match="it is packed, as files that end in"):
        read_rows([file])
