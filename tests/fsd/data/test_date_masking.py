import re

import pytest

from fsd.data import ablations


@pytest.mark.parametrize(
    ("text", "deleted", "replaced"),
    [
        ("Born on 5 July 2014, he", "Born on, he", "Born on 5 July 2023, he"),
        ("2014 was (2014 film) in 2014.", "was (film) in.", "2023 was (2023 film) in 2023."),
        ("July 5th, 2014; Jul 2014", ";", "July 5th, 2023; Jul 2023"),
        ("14 June. Jun. 14.", "..", "14 June. Jun. 14."),
        ("5th of July, July 5", ",", "5th of July, July 5"),
        ("2014-15 and 2014–2016 x", "and x", "2023 and 2023 x"),
        ("the 1990s, 1980's", "the,", "the 2020s, 2020's"),
        ("at 2014-07-05T12:00:00Z x", "at x", "at 2023-07-05T12:00:00Z x"),
        ("05.07.2014, 2014/7/5", ",", "05.07.2023, 2023/7/5"),
        ("于2014年7月5日在北京", "于在北京", "于2023年7月5日在北京"),
        ("二〇一四年，2014年7月", "，", "二〇二三年，2023年7月"),
        ("２０１４年；7月5号", "；", "2023年；7月5号"),
        ("90年代和2010年代", "和", "20年代和2020年代"),
        ("in 2014 2015 x", "in x", "in 2023 2023 x"),
        ("2023's record, 2014’s x", "record, x", "2023's record, 2023’s x"),
        ("September 23 – 30, 2022, x", ", x", "September 23 – 30, 2023, x"),
        ("on 3–5 June 2023.", "on.", "on 3–5 June 2023."),
        ("from 20 to 27 November 2022.", "from.", "from 20 to 27 November 2023."),
        ("September 23 to October 2, 2022; x", "; x", "September 23 to October 2, 2023; x"),
        ("23 September - 2 October 2022; x", "; x", "23 September - 2 October 2023; x"),
        ("June–July 2022, 3 and 4 May, May 3-4 x", ",, x", "June–July 2023, 3 and 4 May, May 3-4 x"),
        ("on March 5 to 10 people", "on to 10 people", "on March 5 to 10 people"),
        ("the 2010's and 1980’s", "the and", "the 2020's and 2020’s"),
        ("line\n2014\nline", "line\n\nline", "line\n2023\nline"),
    ],
)
def test_dates_by_hand(text: str, deleted: str, replaced: str) -> None:
    assert ablations.delete_dates(text) == deleted
    assert ablations.replace_years(text) == replaced


@pytest.mark.parametrize(
    "text",
    ["12014", "2,014", "0.2014", "2014.5", "$2014", "2014%", "COVID2019", "20145", "1492", "2100", "may 5", "Mayor 3",
     "a 5 marching band", "x2014y", "120年代", ""],
)  # fmt: skip
def test_other_numbers_are_not_changed(text: str) -> None:
    assert ablations.delete_dates(text) == text
    assert ablations.replace_years(text) == text


def test_every_date_of_a_text_is_masked() -> None:
    text = "From 3 May 1999 to 2014-01-02, the 1960s and 2001; 1949年10月1日成立，二〇〇八年。"
    assert ablations.delete_dates(text) == "From to, the and;成立，。"
    years = re.findall(r"(?<!\d)\d{4}(?!\d)", ablations.replace_years(text))
    assert set(years) == {"2020", "2023"}  # 2020 from the decade
    assert ablations.replace_years(ablations.replace_years(text)) == ablations.replace_years(text)
