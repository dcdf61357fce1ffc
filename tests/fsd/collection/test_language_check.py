import pytest

from fsd.collection.language_check import is_in, is_supported


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The model was trained on the texts that were published before the day of its release.", "en"),
        ("The model was trained on the texts that were published before the day.", "simple"),
        ("Das Modell wurde mit den Texten trainiert, die vor dem Tag der Freigabe erschienen sind.", "de"),
        ("Le modèle a été entraîné sur les textes qui sont parus avant le jour de la sortie.", "fr"),
        ("El modelo fue entrenado con los textos que se publicaron antes del día de la salida.", "es"),
        ("Модель была обучена на текстах, которые были опубликованы до дня её выхода и не после.", "ru"),
        ("Модель була навчена на текстах, що були опубліковані до дня її виходу, а не після.", "uk"),
        ("本发明涉及一种电池的制造方法，属于新能源技术领域。", "zh"),
        ("このモデルは公開日より前のテキストで訓練されました。", "ja"),
        ("이 모델은 공개일 이전의 글로 훈련되었다.", "ko"),
    ],
)
def test_languages_are_distinguished(text, language):
    assert is_in(text, language)
    assert is_supported(language)
    others = {"en", "de", "fr", "es", "ru", "uk", "zh", "ja", "ko"} - {language, "en" if language == "simple" else ""}
    assert not [other for other in others if is_in(text, other)]


def test_numbers_are_in_no_language_and_an_unsupported_one_is_not_checked():
    assert not is_in("17 4 2023 x = y + 3; print(z) return None assert q", "en")
    assert is_in("17 4 2023", "tlh")
    assert not is_supported("tlh")
