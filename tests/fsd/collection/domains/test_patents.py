import sys
from datetime import date
from random import Random

import pytest

from fsd.collection.domains import patents
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError
from tests.rows import write as rows

AFTER = Window(after=date(2023, 2, 28))
CHINESE = "[0001] 本发明涉及一种<b>电池</b>的制造方法，属于新能源技术领域。\n\n【0002】　　现有的电池寿命较短。"


def patent(text, number, day="2023-05-01"):
    return {"publication_number": number, "priority_date": day, "text": text}


def publish(texts, service, folder):
    """Writes a Chinese patent for each (day, text); gives the options to collect them."""
    pytest.importorskip("jieba", exc_type=ImportError)
    han = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说"
    days = enumerate(day for day, _ in texts)
    records = []
    for n, day in days:
        record = patent("".join(Random(n).choices(han, k=200)), f"CN{n:09}A", str(day))
        # Members are dated by publication, others by priority.
        records.append(record | {"publication_date": str(day)})
    return (f"path={rows(folder / 'dump.jsonl', records)}", "words=60")


def test_snippets_of_chinese_patents(tmp_path):
    jieba = pytest.importorskip("jieba", exc_type=ImportError)
    file = rows(tmp_path / "a.jsonl", [patent(CHINESE, "CN116000001A"), patent("太短", "x")])
    journal = Journal()
    (document,) = patents.texts(AFTER, journal, path=file, words=12, snippet="first")
    assert "本发明涉及一种电池的制造方法，属于新能源技术领域。".startswith(document.text)
    assert len(list(jieba.cut(document.text))) == 12  # a comma is a word, as in the code of DC-PDD
    assert document.origin_url == "https://patents.google.com/patent/CN116000001A"
    assert (document.date, document.group) == (date(2023, 5, 1), "CN116000001A")
    assert journal.dropped == {"shorter than a snippet": 1}


def test_only_chinese_needs_jieba_and_a_missing_column_is_named_by_the_option_of_this_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    file = rows(tmp_path / "a.jsonl", [patent("[0001] a <i>b</i> c d", "z")])
    (document,) = patents.texts(AFTER, Journal(), path=file, language="en", words=3, snippet="first")
    assert (document.text, document.origin_url) == ("a b c", f"{file}:1")
    with pytest.raises(UsageError, match="jieba, which is not installed: pip install"):
        list(patents.texts(AFTER, Journal(), path=file))
    file = rows(tmp_path / "b.jsonl", [{"text": "a", "date": "2023-05-01"}])
    with pytest.raises(UsageError, match="column 'priority_date'; columns are text, date; name it by --options col"):
        list(patents.texts(AFTER, Journal(), path=file))


def test_a_snippet_is_drawn_at_random_and_the_same_each_time(tmp_path):
    text = " ".join(f"w{number}" for number in range(100))
    file = rows(tmp_path / "a.jsonl", [patent(f"{text} of {name}", name) for name in "abcdefgh"])

    def snippets(**more):
        return [d.text for d in patents.texts(AFTER, Journal(), path=file, language="en", **{"words": 10, **more})]

    drawn = snippets()
    assert drawn == snippets() != snippets(seed=7)
    assert {len(snippet.split()) for snippet in drawn} == {10}
    assert len({snippet.split()[0] for snippet in drawn}) > 4
    assert set(snippets(snippet="first")) == {" ".join(text.split()[:10])}
    assert [d.split()[-1] for d in snippets(words=0)] == list("abcdefgh")
    with pytest.raises(UsageError, match="snippet=random or snippet=first; got 'last'"):
        snippets(snippet="last")


def test_members_are_dated_by_publication_and_others_by_priority(tmp_path):
    row = {**patent("a b c", "CN1"), "priority_date": "2021-01-01", "publication_date": "2022-06-01"}
    file = rows(tmp_path / "a.jsonl", [row])
    days = {}
    for name, window in (("member", Window(before=date(2023, 1, 1))), ("other", AFTER)):
        (document,) = patents.texts(window, Journal(), path=file, language="en", words=3)
        days[name] = document.date
    assert days == {"member": date(2022, 6, 1), "other": date(2021, 1, 1)}


def test_what_cannot_be_read_is_refused_before_the_collection(tmp_path):
    file = rows(tmp_path / "a.jsonl", [{"text": "a", "published": "2023-05-01"}])
    patents.check(path=file, columns="", snippet="first")
    with pytest.raises(UsageError, match="snippet=random or snippet=first; got 'last'"):
        patents.check(path=file, columns="", snippet="last")
    with pytest.raises(UsageError, match=r"there is no nowhere\.jsonl"):
        patents.check(path="nowhere.jsonl", columns="", snippet="first")
