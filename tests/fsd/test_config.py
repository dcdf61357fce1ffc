"""The help texts that every pipeline shows."""

import dataclasses
import re

import pytest
import tyro

from fsd import config

CONFIGS = [value for value in vars(config).values() if dataclasses.is_dataclass(value)]


@pytest.mark.parametrize("settings", CONFIGS)
def test_help_names_what_an_optional_value_is(settings, capsys):
    with pytest.raises(SystemExit):
        tyro.cli(settings, args=["--help"], config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands))
    text = capsys.readouterr().out
    assert "None" not in text
    flags = re.findall(r"--([a-z-]+)", text)
    assert {field.name.replace("_", "-") for field in dataclasses.fields(settings) if field.type is str} <= set(flags)


@pytest.mark.parametrize("settings", CONFIGS)
def test_none_can_be_given_for_every_optional_value(settings):
    fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(settings)}
    required = {name: field for name, field in fields.items() if field.default is field.default_factory}
    arguments = [word for name in required for word in (f"--{name}", "a.csv")]
    for name, field in fields.items():
        if field.default is None:
            read = tyro.cli(settings, args=[*arguments, f"--{name}", "None"], config=(tyro.conf.OmitArgPrefixes,))
            assert getattr(read, field.name) is None


def test_what_a_user_typed_is_read_as_the_same_settings():
    default = config.ScoreConfig(data=("a.csv",), out="b.csv")
    model = config.ModelConfig("api:x", neighbours=3)
    detection = config.DetectorConfig(settings=("surp.k=30", "min_k.k=0.1"))
    api = config.APIConfig(base_url="http://a/v1", start_token="-s", requests_per_minute=0.5)
    changed = dataclasses.replace(default, chat=True, columns="-a=b", model=model, detection=detection, api=api)
    words = config.typed(changed, default)
    assert "--start-token=-s" in words
    assert "--chat" in words
    settings = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
    assert tyro.cli(config.ScoreConfig, args=["--data", "a.csv", "--out", "b.csv", *words], config=settings) == changed
    assert config.typed(default, dataclasses.replace(default, chat=True)) == ["--no-chat"]
    assert config.typed(default, default) == []
