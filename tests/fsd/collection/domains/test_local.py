from datetime import date

import pytest

from fsd.collection.domains import local
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError
from tests.rows import write as rows

AFTER = Window(after=date(2023, 2, 28))


def publish(texts, service, folder):
    """Writes a file for each (day, text); gives the options to collect them."""
    for n, (day, text) in enumerate(texts):
        (folder / f"{day} minutes {n}.txt").write_text(text)
    return (f"path={folder}",)


def test_a_table_by_its_date_column_nearest_day_first(tmp_path):
    days = enumerate(["2023-05-01", "2023-04-01", None])
    file = rows(tmp_path / "a.jsonl", [{"body": f"text number {n}", "day": day, "id": n} for n, day in days])
    columns = "text=body,date=day,group=id"
    documents = list(local.texts(AFTER, Journal(), path=file, columns=columns, words=2))
    assert {d.text for d in documents} == {"text number"}
    assert [(str(d.date), d.group) for d in documents] == [("2023-04-01", "1"), ("2023-05-01", "0"), ("None", "2")]
    assert documents[0].origin_url == f"{file}:2"
    newest = next(local.texts(Window(before=date(2024, 1, 1)), Journal(), path=file, columns=columns))
    assert newest.date == date(2023, 5, 1)


def test_a_folder_by_the_dates_in_its_file_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "2023-05-01 minutes.txt").write_text("\ufeffthe minutes", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("the notes")
    documents = list(local.texts(AFTER, Journal(), path=str(tmp_path)))
    assert [(d.text, d.date) for d in documents] == [("the minutes", date(2023, 5, 1)), ("the notes", None)]


def test_texts_without_a_date_are_refused_and_rows_without_a_text_counted(tmp_path):
    no_date = "none of its 1 texts has a date: "
    for at, (name, content, message) in enumerate(
        (
            ("a.txt", b"text", f"{no_date}.* files' own times prove nothing"),
            ("2023-02-30.txt", b"text", "a date that exists"),
            ("2023-05-01.txt", b" ", "none of its 0 texts has a date: "),
            ("a.jsonl", b'{"text": "a"}\n', f"{no_date}name the column by columns=date=NAME"),
            ("a.jsonl", b'{"text": 5, "date": "2023-01-01"}\n', "1: text must be a string that is not blank; got 5"),
        )
    ):
        file = tmp_path / str(at) / name
        file.parent.mkdir()
        file.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            list(local.texts(AFTER, Journal(), path=str(file if name == "a.jsonl" else file.parent)))
    file = rows(tmp_path / "b.jsonl", [{"text": text, "date": "2023-05-01"} for text in ("a", " ", None, "b")])
    journal = Journal()
    assert [d.text for d in local.texts(AFTER, journal, path=file)] == ["a", "b"]
    assert journal.dropped == {"blank text": 2}
    with pytest.raises(UsageError, match="data file must exist"):
        list(local.texts(AFTER, journal, path="x" * 300 + ".jsonl"))
