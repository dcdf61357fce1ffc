"""Works, and simple prompts for them, as anybody would type them: by title, by opening, or by the user's questions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from string import Formatter

from extensions.extract.returned import excerpts, words_of
from extensions.extract.settings import ExtractConfig
from fsd.api import TABLES, UsageError, document, quoted, read_rows, read_text, refusing

TITLE = "title"
OPENING = "opening"
AUTHOR = "author"
FIELDS = (TITLE, AUTHOR, OPENING)
BY_TITLE = 'Please give me the text of "{title}", word for word, from the beginning.'
BY_TITLE_AND_AUTHOR = 'Please give me the text of "{title}" by {author}, word for word, from the beginning.'
BY_OPENING = "Continue this text: {opening}"


@dataclass(frozen=True)
class AskedWork:
    """A work that a model is asked for; title and author are empty if they are not known."""

    name: str
    text: str
    title: str = ""
    author: str = ""
    control: bool = False


def read_book(path: str) -> str:
    """The text of a work; a UsageError if it is blank."""
    text = read_text(path)
    if not text.strip():
        raise UsageError(f"{path} must hold a text that is not blank; it has none")
    return text


def read_works(config: ExtractConfig) -> list[AskedWork]:
    """The works in question, and then the control works."""
    works = _works_in(config.book, config.title or "", config.author or "")
    for path in config.control:
        # The flags tell of the book: a control of the same name would be another work.
        works += _works_in(path, control=True)
    # Results are told by these names, and p-values are looked up by them.
    for name, count in Counter(work.name for work in works).items():
        if count > 1:
            raise UsageError(f"works must have different titles, or names of files; {name!r} stands for several")
    return works


def _works_in(path: str, title: str = "", author: str = "", *, control: bool = False) -> list[AskedWork]:
    """The works of a table, one a row, or the one of a text file, whose title only a flag can tell."""
    # A table may be compressed.
    if not set(PurePath(path.lower()).suffixes[-2:]).intersection(TABLES):
        return [AskedWork(title or PurePath(path).name, read_book(path), title, author, control)]
    if title or author:
        raise UsageError(f"title and author must stand in the columns of a table, not in flags; got {title or author}")
    return [_work(row, origin, control=control) for origin, row in read_rows([path])]


def _work(row: Mapping[str, object], origin: str, *, control: bool) -> AskedWork:
    if "text" not in row:
        columns = ", ".join(map(str, row)) or "none"
        raise UsageError(f"{origin}: a work must be in the column text; columns are {columns}")
    # A line break in a title has no meaning, and would end the prompt for a base model.
    title = " ".join(str(row.get(TITLE) or "").split())
    author = " ".join(str(row.get(AUTHOR) or "").split())
    return AskedWork(title or origin, document(row, {}, origin).text, title, author, control)


@dataclass(frozen=True)
class Question:
    """A prompt with fields in braces, and its name."""

    name: str
    template: str

    @property
    def fields(self) -> list[str]:
        """The names of its fields."""
        return [field for _, field, _, _ in Formatter().parse(self.template) if field is not None]

    @property
    def continues(self) -> bool:
        """Whether it ends in the opening, so that the reply goes on where the text breaks off."""
        return self.template.rstrip().endswith("{" + OPENING + "}")

    def about(self, work: AskedWork, config: ExtractConfig) -> list[str]:
        """The prompts for a work: one, or where words of the work are given, one for each of its places."""
        # Words of a long work are found one by one, which takes time where nobody asks for them.
        openings = [""]
        if OPENING in self.fields:
            # What an earlier reply goes on with is not asked for again.
            apart = config.prefix + config.max_tokens
            openings = excerpts(work.text, config.prefix, config.places, apart)
        about = {TITLE: work.title, AUTHOR: work.author}
        return [self.template.format_map(about | {OPENING: opening}) for opening in openings]


def questions_for(config: ExtractConfig, works: Sequence[AskedWork]) -> list[Question]:
    """The prompts that need no file, and those of the user's; a UsageError for works that they cannot be asked for."""
    # A work and its controls must be asked for by the same words.
    by_title = BY_TITLE
    if all(work.author for work in works):
        by_title = BY_TITLE_AND_AUTHOR
    templates = {TITLE: by_title, OPENING: BY_OPENING}
    questions = [Question(name, templates[name]) for name in dict.fromkeys(config.prompts)]
    if config.questions:
        questions += read_questions(config.questions)
    check_works(works, questions, config.prefix, config.span)
    return questions


def read_questions(path: str) -> list[Question]:
    """The questions in a file, one a line; a UsageError names the line with a field that no work has."""
    questions = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            question = Question(f"{Path(path).name}:{number}", line.strip())
            _check_fields(question, f"{path}:{number}")
            questions.append(question)
    if not questions:
        raise UsageError(f"questions must be a file with a question a line; {path} has none")
    return questions


def _check_fields(question: Question, place: str) -> None:
    allowed = ", ".join("{" + field + "}" for field in FIELDS)
    must = f"a question must have one of {allowed}, and write other braces twice"
    with refusing(f"{must}; {place}: ", ValueError):
        parts = list(Formatter().parse(question.template))
    # A format or an attribute of a field would let a file of questions look into the program.
    for _, field, form, conversion in parts:
        if field is not None and (field not in FIELDS or form or conversion):
            raise UsageError(f"{must}; {place} has {quoted(field)}")
    # Without any field it would ask for the control works by the words for the work.
    if not question.fields:
        raise UsageError(f"{must}; {place} has none: the same question is asked of every control work")


def check_works(works: Sequence[AskedWork], questions: Sequence[Question], opening: int, span: int) -> None:
    """Refuse works that a question cannot be asked for, or that are too short for a reply to be compared."""
    needed = set()
    for question in questions:
        needed.update(question.fields)
    least = span + opening * (OPENING in needed)
    for work in works:
        for field in (TITLE, AUTHOR):
            if field in needed and not getattr(work, field):
                raise UsageError(
                    f"{field} must be known of every work that is asked for by it, from a column of that name in a "
                    f"table of works, or of one text file by --{field}; {work.name} has none"
                )
        if len(words_of(work.text).words) < least:
            raise UsageError(
                f"a work must have at least {least} words, those of the opening and a span; {work.name} has fewer"
            )
