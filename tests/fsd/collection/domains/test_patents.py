import json
import sys
from datetime import date
from random import Random

import pytest

from fsd.collection.domains import patents
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

AFTER = Window(after=date(2023, 2, 28))
CHINESE = "[0001] 本发明涉及一种<b>电池</b>的制造方法，属于新能源技术领域。\n\n【0002】　　现有的电池寿命较短。"


def rows(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return str(path)


def patent(text, number, day="2023-05-01"):
    return {"publication_number": number, "priority_date": day, "text": text}


def publish(texts, service, folder):
    """Writes a Chinese patent for each (day, text); gives the options to collect them."""
    pytest.importorskip("jieba", exc_type=ImportError)
    han = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说"
    days = enumerate(day for day, _ in texts)
    records = [patent("".join(Random(n).choices(han, k=200)), f"CN{n:09}A", str(day)) for n, day in days]
    return (f"path={rows(folder / 'dump.jsonl', records)}", "words=60")


def test_snippets_of_chinese_patents(tmp_path):
    jieba = pytest.importorskip("jieba", exc_type=ImportError)
    file = rows(tmp_path / "a.jsonl", [patent(CHINESE, "CN116000001A"), patent("太短", "x")])
    journal = Journal()
    (document,) = patents.texts(AFTER, journal, path=file, words=8)
    assert "本发明涉及一种电池的制造方法，属于新能源技术领域。".startswith(document.text)
    assert len([word for word in jieba.cut(document.text) if word.isalnum()]) == 8
    assert document.origin_url == "https://patents.google.com/patent/CN116000001A"
    assert (document.date, document.group) == (date(2023, 5, 1), "CN116000001A")
    assert journal.dropped == {"shorter than a snippet": 1}


def test_only_chinese_needs_jieba_and_a_missing_column_is_named_by_the_option_of_this_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    file = rows(tmp_path / "a.jsonl", [patent("[0001] a <i>b</i> c d", "z")])
    (document,) = patents.texts(AFTER, Journal(), path=file, language="en", words=3)
    assert (document.text, document.origin_url) == ("a b c", f"{file}:1")
    with pytest.raises(UsageError, match="jieba, which is not installed: pip install"):
        list(patents.texts(AFTER, Journal(), path=file))
    file = rows(tmp_path / "b.jsonl", [{"text": "a", "date": "2023-05-01"}])
    with pytest.raises(UsageError, match="column 'priority_date'; columns are text, date; name it by --options col"):
        list(patents.texts(AFTER, Journal(), path=file))
