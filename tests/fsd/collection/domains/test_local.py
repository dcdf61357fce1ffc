import json
from datetime import date

import pytest

from fsd.collection.domains import local
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

AFTER = Window(after=date(2023, 2, 28))


def rows(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return str(path)


def publish(texts, service, folder):
    """Writes a file for each (day, text); gives the options to collect them."""
    for n, (day, text) in enumerate(texts):
        (folder / f"{day} minutes {n}.txt").write_text(text)
    return (f"path={folder}",)


def test_a_table_by_its_date_column_nearest_day_first(tmp_path):
    file = rows(
        tmp_path / "a.jsonl",
        [{"body": f"text number {n}", "day": day, "id": n} for n, day in enumerate(["2023-05-01", "2023-04-01", None])],
    )
    columns = "text=body,date=day,group=id"
    documents = list(local.texts(AFTER, Journal(), path=file, columns=columns, words=2))
    assert [(d.text, d.date, d.group) for d in documents] == [
        ("text number", date(2023, 4, 1), "1"),
        ("text number", date(2023, 5, 1), "0"),
        ("text number", None, "2"),
    ]
    assert documents[0].source == f"{file}:2"
    newest = next(local.texts(Window(before=date(2024, 1, 1)), Journal(), path=file, columns=columns))
    assert newest.date == date(2023, 5, 1)


def test_a_folder_by_the_dates_in_its_file_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "2023-05-01 minutes.txt").write_text("\ufeffthe minutes", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("the notes")
    documents = list(local.texts(AFTER, Journal(), path=str(tmp_path)))
    assert [(d.text, d.date) for d in documents] == [("the minutes", date(2023, 5, 1)), ("the notes", None)]


def test_bad_folders(tmp_path):
    cases = [
        ("a.txt", b"text", "none of its 1 texts has a date: .* files' own times prove nothing"),
        ("2023-02-30.txt", b"text", "a date that exists"),
        ("2023-05-01.txt", b" ", "at least one file with a text must be given"),
    ]
    for name, content, message in cases:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            list(local.texts(AFTER, Journal(), path=str(folder)))


def test_bad_tables(tmp_path):
    file = tmp_path / "a.jsonl"
    cases = {
        '{"text": "a"}\n': "none of its 1 texts has a date: name the column by columns=date=NAME",
        '{"text": 5, "date": "2023-01-01"}\n': "a.jsonl:1: text must be a string that is not blank; got 5",
    }
    for content, message in cases.items():
        file.write_text(content)
        with pytest.raises(UsageError, match=message):
            list(local.texts(AFTER, Journal(), path=str(file)))


def test_rows_without_a_text_are_dropped_and_counted(tmp_path):
    file = rows(tmp_path / "a.jsonl", [{"text": text, "date": "2023-05-01"} for text in ("a", " ", None, "b")])
    journal = Journal()
    assert [d.text for d in local.texts(AFTER, journal, path=file)] == ["a", "b"]
    assert journal.dropped == {"blank text": 2}
    with pytest.raises(UsageError, match="data file must exist"):
        list(local.texts(AFTER, journal, path="x" * 300 + ".jsonl"))
