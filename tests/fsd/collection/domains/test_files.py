import json
import sys
from datetime import date

import pytest

from fsd.collection.domains import local, patents
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

AFTER = Window(after=date(2023, 2, 28))
CHINESE = "[0001] 本发明涉及一种<b>电池</b>的制造方法，属于新能源技术领域。\n\n【0002】　　现有的电池寿命较短。"


def rows(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_a_table_by_its_date_column_nearest_day_first(tmp_path):
    file = rows(
        tmp_path / "a.jsonl",
        [{"body": f"text number {n}", "day": day, "id": n} for n, day in enumerate(["2023-05-01", "2023-04-01", None])],
    )
    columns = "text=body,date=day,group=id"
    found = list(local.texts(AFTER, Journal(), path=file, columns=columns, words=2))
    assert [(d.text, d.date, d.group) for d in found] == [
        ("text number", date(2023, 4, 1), "1"),
        ("text number", date(2023, 5, 1), "0"),
        ("text number", None, "2"),
    ]
    assert found[0].source == f"{file}:2"
    newest = next(local.texts(Window(before=date(2024, 1, 1)), Journal(), path=file, columns=columns))
    assert newest.date == date(2023, 5, 1)
    assert [d.group for d in local.nonmembers(after=date(2023, 4, 1), limit=9, path=file, columns=columns)] == ["0"]


def test_a_folder_by_the_dates_in_its_file_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "2023-05-01 minutes.txt").write_text("\ufeffthe minutes", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("the notes")
    found = list(local.texts(AFTER, Journal(), path=str(tmp_path)))
    assert [(d.text, d.date) for d in found] == [("the minutes", date(2023, 5, 1)), ("the notes", None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"text", "none of its 1 texts has a date: .* files' own times prove nothing"),
        ("2023-05-01.txt", "caf\xe9".encode("latin-1"), "must be encoded in UTF-8; byte 3 is not"),
        ("2023-02-30.txt", b"text", "a date that exists"),
        ("2023-05-01.txt", b" ", "it is empty"),
        ("a.pdf", b"x", "must hold .txt files"),
    ],
)
def test_bad_folders(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        list(local.texts(AFTER, Journal(), path=str(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n', "none of its 1 texts has a date: name the column by columns=date=NAME"),
        ('{"text": 5, "date": "2023-01-01"}\n', "a.jsonl:1: text must be a string that is not blank; got 5"),
        ('{"text": "a", "date": "2023-01-01"}\n{"text": "b", "date": 7}\n', "a.jsonl:2: date must begin as year-month"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        list(local.texts(AFTER, Journal(), path=str(file)))


def test_a_missing_column_is_named_by_the_option_of_this_command(tmp_path):
    file = rows(tmp_path / "a.jsonl", [{"text": "a", "date": "2023-05-01"}])
    with pytest.raises(UsageError, match="column 'priority_date'; columns are text, date; name it by --options col"):
        list(patents.texts(AFTER, Journal(), path=file))


def test_snippets_of_chinese_patents(tmp_path):
    jieba = pytest.importorskip("jieba", exc_type=ImportError)
    record = {"text": CHINESE, "priority_date": "2023-05-01", "publication_number": "CN116000001A"}
    file = rows(tmp_path / "a.jsonl", [record, record | {"text": "太短", "publication_number": "x"}])
    journal = Journal()
    (found,) = patents.texts(AFTER, journal, path=file, words=8)
    text = "本发明涉及一种电池的制造方法，属于新能源技术领域。"
    assert text.startswith(found.text)
    assert len([word for word in jieba.cut(found.text) if word.isalnum()]) == 8
    assert found.source == "https://patents.google.com/patent/CN116000001A"
    assert (found.date, found.group) == (date(2023, 5, 1), "CN116000001A")
    assert journal.dropped == {"shorter than a snippet": 1}


def test_other_languages_need_no_jieba_and_chinese_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    file = rows(
        tmp_path / "a.jsonl",
        [{"text": "[0001] a <i>b</i> c d", "priority_date": "2023-05-01", "publication_number": "z"}],
    )
    (found,) = patents.texts(AFTER, Journal(), path=file, language="en", words=3)
    assert (found.text, found.source) == ("a b c", f"{file}:1")
    with pytest.raises(UsageError, match="jieba, which is not here: pip install"):
        list(patents.texts(AFTER, Journal(), path=file))
