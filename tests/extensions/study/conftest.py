import json

import pytest


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A file of 40 texts without common words, each in a group of its own."""
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    words = [" ".join(f"{chr(97 + (n + k) % 26)}{n}{k}" for k in range(6 + n % 5)) for n in range(40)]
    rows = ({"text": text, "label": n % 2, "group": f"g{n}"} for n, text in enumerate(words))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)
