from fsd.collection.language_check import is_in, is_supported

TEXTS = {
    "en": "The model was trained on the texts that were published before the day of its release.",
    "de": "Das Modell wurde mit den Texten trainiert, die vor dem Tag der Freigabe erschienen sind.",
    "fr": "Le modèle a été entraîné sur les textes qui sont parus avant le jour de la sortie.",
    "es": "El modelo fue entrenado con los textos que se publicaron antes del día de la salida.",
    "ru": "Модель была обучена на текстах, которые были опубликованы до дня её выхода и не после.",
    "uk": "Модель була навчена на текстах, що були опубліковані до дня її виходу, а не після.",
    "zh": "本发明涉及一种电池的制造方法，属于新能源技术领域。",
    "ja": "このモデルは公開日より前のテキストで訓練されました。",
    "ko": "이 모델은 공개일 이전의 글로 훈련되었다.",
}


def test_languages_are_distinguished():
    for language, text in TEXTS.items():
        assert [other for other in TEXTS if is_in(text, other)] == [language]
        assert is_supported(language)
    assert is_in(TEXTS["en"], "simple")


def test_numbers_are_in_no_language_and_an_unsupported_one_is_not_checked():
    assert not is_in("17 4 2023 x = y + 3; print(z) return None assert q", "en")
    assert is_in("17 4 2023", "tlh")
    assert not is_supported("tlh")
