"""Years and dates in a text, in English and Chinese: found, deleted, or their year replaced (FSD, Table 5).

What counts, with a year from 1500 to 2099, in half-width or full-width digits:

- numeric dates: 2014-07-05, 2014/7/5, 2014.07.05, with a time of day if one follows; 5/7/2014, 05.07.2014;
- English dates: 5 July 2014, July 5th, 2014, July 2014; days without a year: 5 July, July 5;
- Chinese dates: 2014年, 2014年7月, 2014年7月5日, 二〇一四年; days without a year: 7月5日, 7月5号; 2010年代, 90年代;
- years alone: 2014, ranges 2014-15 and 2014–2016, decades 1990s.

A number of four digits in that range that is no year (2014 people, page 1650) looks like one and counts too, but
not as part of a longer number (12014, 2,014, 0.2014, 2014.5, 2014%, $2014) or of a word (COVID2019).
"""

import re

_DIGITS = "0-9０-９"
_YEAR = r"(?:[1１][5-9５-９]|[2２][0０])\d\d"
_MONTH = (
    r"(?:Jan(?:uary|\.)?|Feb(?:ruary|\.)?|Mar(?:ch|\.)?|Apr(?:il|\.)?|May|June?\.?|July?\.?|Aug(?:ust|\.)?"
    r"|Sept?(?:ember|\.)?|Oct(?:ober|\.)?|Nov(?:ember|\.)?|Dec(?:ember|\.)?)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_TIME = r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_NUMERAL = "[〇零○一二三四五六七八九]"
_CHINESE_DAY = r"\d{1,2}\s?月\s?(?:\d{1,2}\s?[日号])"

_START = rf"(?<![A-Za-z_{_DIGITS}$€£#])(?<![{_DIGITS}][.,/-])"
_END = rf"(?![A-Za-z_{_DIGITS}%])(?![.,][{_DIGITS}])"

_FORMS = (
    rf"{_START}{_YEAR}([-/.])\d{{1,2}}\1\d{{1,2}}{_TIME}{_END}",
    rf"{_START}\d{{1,2}}([-/.])\d{{1,2}}\2{_YEAR}{_END}",
    rf"{_START}{_DAY}(?: of)? {_MONTH},? {_YEAR}{_END}",
    rf"\b{_MONTH} {_DAY},? {_YEAR}{_END}",
    rf"\b{_MONTH},? {_YEAR}{_END}",
    rf"{_START}{_YEAR}\s?年(?:代|\s?\d{{1,2}}\s?月(?:\s?\d{{1,2}}\s?[日号])?)?",
    rf"[一二]{_NUMERAL}{{3}}年",
    rf"(?<![{_DIGITS}])\d0年代",
    rf"(?<![{_DIGITS}]){_CHINESE_DAY}",
    rf"{_START}{_DAY} {_MONTH}(?![A-Za-z])",
    rf"\b{_MONTH} {_DAY}{_END}",
    rf"{_START}{_YEAR}(?: ?[-–—/] ?(?:{_YEAR}|\d\d))?(?:'?s)?{_END}",
)
"""From the longest to the shortest, so that a date is found whole."""

_STAMP = re.compile(rf"(?P<before>[ \t]?)(?P<stamp>{'|'.join(_FORMS)})(?P<after>[ \t]?)".replace(r"\1", "(?P=a)"))
