"""Prompts of works: the usual ones, those of a file, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from extensions.extract.questions import AskedWork, Question, check_works, questions_for, read_book, read_questions
from extensions.extract.settings import ExtractConfig
from fsd.errors import UsageError

BOOK = AskedWork("book", "One two three, four five six.", "Numbers", "A. Counter")
OTHER = AskedWork("other", "Red green blue yellow white black.", "Colours", control=True)


def test_the_usual_prompts_are_the_same_for_works_and_controls() -> None:
    asked = ExtractConfig(prompts=("title", "opening", "title"), prefix=3, span=3)
    title, opening = questions_for(asked, [BOOK, OTHER])
    assert title.about(BOOK, asked) == ['Please give me the text of "Numbers", word for word, from the beginning.']
    assert opening.about(OTHER, asked) == ["Continue this text: Red green blue"]
    assert (title.continues, opening.continues) == (False, True)
    (with_author,) = questions_for(ExtractConfig(prompts=("title",), span=3), [BOOK])
    assert '"Numbers" by A. Counter,' in with_author.about(BOOK, asked)[0]
    # Six words have room for three places of one word, and a reply of one.
    places = opening.about(OTHER, replace(asked, prefix=1, max_tokens=1))
    assert [line.rpartition(" ")[2] for line in places] == ["Red", "blue", "white"]
    assert len(title.about(OTHER, replace(asked, prefix=1, max_tokens=1))) == 1


def test_questions_of_a_file_are_asked_about_every_work(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text('What follows "{opening}"?\n\n In {title} by {author}, {{who}} speaks?  \n')
    questions = read_questions(str(file))
    assert [question.name for question in questions] == ["mine.txt:1", "mine.txt:3"]
    asked = [prompt for question in questions for prompt in question.about(BOOK, ExtractConfig(prefix=2))]
    assert asked == ['What follows "One two"?', "In Numbers by A. Counter, {who} speaks?"]
    assert not questions[0].continues


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Who wrote {name}?", "must have one of {title}, {author}, {opening}, .*mine.txt:1 has 'name'"),
        ("{title!r}", "has 'title'"),
        ("{title.__class__}", r"has 'title\.__class__'"),
        ("{title:>9}", "has 'title'"),
        ("{}", "has ''"),
        ("Who wrote {title?", "mine.txt:1: expected '}'"),
        ("Who wrote Emma?", "mine.txt:1 has none: the same question is asked of every control work"),
        ("", "must be a file with a question a line; .*mine.txt has none"),
    ],
)
def test_what_is_no_question_is_refused(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(line)
    with pytest.raises(UsageError, match=message):
        read_questions(str(tmp_path / "mine.txt"))


@pytest.mark.parametrize("name", ["book.docx", "BOOK.EPUB", "book.pdf"])
def test_a_book_of_another_format_is_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04\x14\x00\xff\xfe")
    with pytest.raises(UsageError, match="text file in UTF-8; it is not: save it as plain text in UTF-8"):
        read_book(str(tmp_path / name))


def test_works_that_cannot_be_asked_for_are_refused() -> None:
    title, opening = Question("t", "{title} by {author}"), Question("o", "{opening}")
    with pytest.raises(UsageError, match=r"author must be known of every work .* by --author; other has none"):
        check_works([BOOK, OTHER], [title], 3, 2)
    check_works([BOOK, OTHER], [opening], 3, 3)
    with pytest.raises(UsageError, match="must have at least 7 words, those of the opening and a span; book has fewer"):
        check_works([BOOK, OTHER], [opening], 4, 3)
    check_works([BOOK], [title], 4, 6)
    # Words are counted as they are compared: two of them may be written as one piece.
    check_works([AskedWork("dash", "one two—three")], [opening], 1, 2)
    with pytest.raises(UsageError, match="must have at least 4 words"):
        check_works([AskedWork("dash", "one two—three …")], [opening], 1, 3)
