"""A cheap language check by script and function words, which also catches a table or a page of code."""

import re

from fsd.data.near_duplicates import words
from fsd.unspaced import HAN, IS_KANA, KANA

_STOP = {
    "en": "the of and to in a is that for it was on with as by at from are this be which",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als",
    "fr": "de la le et les des en un du une que est pour qui dans par au pas sur plus",
    "es": "de la que el en y los se del las un por con una su para es al lo como",
    "it": "di e il la che in un del per una con non si da dei sono della le nel alla",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as",
    "nl": "de van het een en in is dat op te zijn met voor niet aan er om door als ook",
    "sv": "och i att det som en på är av för med till den har de inte om ett var från",
    "pl": "w i na z do się że nie jest o to przez po od za oraz jak dla był jego",
    "cs": "a v se na je že z s do o to i ve k za pro po jako by od",
    "ru": "и в на с что по не из он как для к был это от его за до или при",
    "uk": "і в на з що у до не та за від це як для його він був про або є",
}
# Language -> twenty of its most common words.
STOP = {language: frozenset(common.split()) for language, common in _STOP.items()}

_SCRIPTS = {
    "zh": HAN,
    "ja": HAN + KANA,
    "ko": "\uac00-\ud7af\u1100-\u11ff",
    "ar": "\u0600-\u06ff",
    "fa": "\u0600-\u06ff",
    "he": "\u0590-\u05ff",
    "el": "\u0370-\u03ff",
    "hi": "\u0900-\u097f",
    "th": "\u0e00-\u0e7f",
    "ru": "\u0400-\u04ff",
    "uk": "\u0400-\u04ff",
}
SCRIPTS = {language: re.compile(f"[{signs}]") for language, signs in _SCRIPTS.items()}
LETTER = re.compile(r"[^\W\d_]")
# Least share of common words in running text; tables of names and numbers have less, prose has 15 to 45 %.
MIN_COMMON = 0.06


def is_supported(language: str) -> bool:
    """Whether `is_in` can check texts of that language."""
    return _base(language) in STOP or _base(language) in SCRIPTS


def is_in(text: str, language: str) -> bool:
    """Whether the text is probably in the language, by letters and common words; True for unsupported languages."""
    base = _base(language)
    if base in SCRIPTS and not _in_script(text, base):
        return False
    if base not in STOP:
        return True
    tokens = words(text)
    n_common = _count(tokens, STOP[base])
    if n_common < MIN_COMMON * len(tokens):
        return False
    # Related languages share words, so that the share alone does not tell Czech from Polish.
    return n_common == max(_count(tokens, common) for common in STOP.values())


def _in_script(text: str, base: str) -> bool:
    letters = "".join(LETTER.findall(text))
    n_script = len(SCRIPTS[base].findall(letters))
    n_kana = len(IS_KANA.findall(letters))
    # Texts quote names and terms in Latin letters: most letters must be of the script, not all.
    if 2 * n_script <= len(letters):
        return False
    # Japanese is written with Chinese characters too, but never without kana.
    if base == "zh":
        return 20 * n_kana <= n_script
    return base != "ja" or n_kana > 0


def _count(tokens: list[str], common: frozenset[str]) -> int:
    return sum(token in common for token in tokens)


def _base(language: str) -> str:
    base = language.lower().partition("-")[0]
    # The edition of Wikipedia in simple English has a code of its own.
    return "en" if base == "simple" else base
