"""Deletion of dates and replacement of years in English and Chinese texts (FSD, arXiv 2410.10880, Table 5).

Recognised forms, with a year from 1500 to 2099 in half-width or full-width digits:

- numeric dates: 2014-07-05, 2014/7/5, 2014.07.05, with a time of day if one follows; 5/7/2014, 05.07.2014;
- English dates: 5 July 2014, July 5th, 2014, July 2014; days without a year: 5 July, July 5;
- Chinese dates: 2014年, 2014年7月, 2014年7月5日, 二〇一四年; days without a year: 7月5日, 7月5号;
- ranges of days or months in English: 3–5 June 2023, September 23 to October 2, 2022, June–July 2023;
- decades: 1990s, 1990's, 1990年代, 90年代;
- years alone, 2014, with a possessive, 2014's, and ranges of them, 2014-15, 2014–2016.

Other numbers of four digits in that range (2014 people, page 1650) are recognised too, but not as part of a longer
number (12014, 2,014, 0.2014, 2014.5), an amount or percentage ($2014, 2014%) or a word (COVID2019).
"""

import re

NOW = "2023"
"""Replacement of every year, as in the paper."""

_DIGIT = "0-9０-９"
_YEAR = r"(?:[1１][5-9５-９]|[2２][0０])\d\d"
_YEAR_0 = r"(?:[1１][5-9５-９]|[2２][0０])\d[0０]"
_NUMERALS = "[一二][〇零○一二三四五六七八九]{3}"
_MONTH = (
    r"(?:Jan(?:uary|\.)?|Feb(?:ruary|\.)?|Mar(?:ch|\.)?|Apr(?:il|\.)?|May|June|Jun\.?|July|Jul\.?|Aug(?:ust|\.)?"
    r"|Sept?(?:ember|\.)?|Oct(?:ober|\.)?|Nov(?:ember|\.)?|Dec(?:ember|\.)?)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_TO = r"(?:\s?[-–—/]\s?|\s(?:to|until|through|and)\s)"
_DAYS = rf"{_DAY}(?:{_TO}{_DAY})?"
_TIME = r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_CHINESE_DAY = r"\d{1,2}\s?月\s?\d{1,2}\s?[日号]"

_START = rf"(?<![A-Za-z_{_DIGIT}$€£#])(?<![{_DIGIT}][.,/-])"
_END = rf"(?![A-Za-z_{_DIGIT}%])(?![.,][{_DIGIT}])"

_FORMS = (
    rf"{_START}{_YEAR}(?P<first>[-/.])\d{{1,2}}(?P=first)\d{{1,2}}{_TIME}{_END}",
    rf"{_START}\d{{1,2}}(?P<last>[-/.])\d{{1,2}}(?P=last){_YEAR}{_END}",
    rf"{_START}{_DAY}(?: of)? {_MONTH}{_TO}{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR}{_END}|(?![A-Za-z]))",
    rf"\b{_MONTH} {_DAY}{_TO}{_MONTH} {_DAY}(?:,? {_YEAR})?{_END}",
    rf"{_START}{_DAYS}(?: of)? {_MONTH},? {_YEAR}{_END}",
    rf"\b{_MONTH} {_DAYS},? {_YEAR}{_END}",
    rf"\b(?:{_MONTH}{_TO})?{_MONTH},? {_YEAR}{_END}",
    rf"(?P<decade>{_START}{_YEAR_0}(?:['’]?s(?![A-Za-z])|\s?年代)|(?<![{_DIGIT}])[1-9]0年代)",
    rf"{_START}{_YEAR}['’]s(?![A-Za-z])",
    rf"{_START}{_YEAR}\s?年(?:\s?\d{{1,2}}\s?月(?:\s?\d{{1,2}}\s?[日号])?)?",
    rf"{_NUMERALS}年",
    rf"(?P<span>{_START}{_YEAR} ?[-–—/] ?(?:{_YEAR}|\d\d){_END})",
    rf"{_START}{_YEAR}{_END}",
    rf"(?<![{_DIGIT}]){_CHINESE_DAY}",
    rf"{_START}{_DAYS}(?: of)? {_MONTH}(?![A-Za-z])",
    rf"\b{_MONTH} {_DAY}(?:\s?[-–—]\s?{_DAY})?{_END}",
)
"""Dates come before the years that they contain, so that they match as a whole."""

_STAMP = re.compile(rf"(?P<before>[ \t]?)(?P<stamp>{'|'.join(_FORMS)})(?P<after>[ \t]?)")


def stamps(text: str) -> list[str]:
    """The dates and years in the text, in order."""
    return [match["stamp"] for match in _STAMP.finditer(text)]


def delete(text: str) -> str:
    """The text without its dates; a blank remains only where a date had blanks on both sides.

    Words that introduce a date remain: "born in 2014, he" becomes "born in, he".
    """
    return _STAMP.sub(lambda match: match["before"] and match["after"], text)


def replace(text: str) -> str:
    """The text with every year replaced by 2023, decades by the 2020s, and ranges of years by 2023.

    Days and months do not change.
    """
    return _STAMP.sub(lambda match: match["before"] + _now(match) + match["after"], text)


def _now(match: re.Match[str]) -> str:
    stamp = match["stamp"]
    if match["span"]:
        return NOW
    if match["decade"]:
        return re.sub(r"\d+", lambda digits: "2020" if len(digits[0]) == 4 else "20", stamp)
    stamp = re.sub(_NUMERALS, "二〇二三", stamp)
    return re.sub(rf"(?<!\d){_YEAR}(?!\d)", NOW, stamp)
