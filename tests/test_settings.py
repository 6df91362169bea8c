"""Where settings come from, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clover_agent.errors import LoadFailed
from clover_agent.settings import GROUPS, ServerSettings, Settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for group in GROUPS.values():
        for name in group.model_fields:
            monkeypatch.delenv(f"CLOVER_{name.upper()}", raising=False)


def write(path: Path, text: str) -> Path:
    file = path / "clover.toml"
    file.write_text(text)
    return file


def test_the_defaults_are_local_and_safe() -> None:
    server = Settings.load().server
    assert (server.host, server.port, server.api_key, server.allowed_origins) == ("127.0.0.1", 8000, (), ())
    assert server.keep_alive_s <= 15
    assert server.silence_event_s <= 120
    assert not Settings.load().model.trust_remote_code


def test_a_flag_beats_the_file_and_the_file_beats_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PORT", "1"), ("HOST", "a"), ("MAX_NUM_SEQS", "3")):
        monkeypatch.setenv(f"CLOVER_{name}", value)
    file = write(tmp_path, '[server]\nport = 2\nhost = "b"\n')
    settings = Settings.load(file, {"port": "4", "host": None})
    assert (settings.server.port, settings.server.host, settings.engine.max_num_seqs) == (4, "b", 3)


def test_lists_and_json_come_as_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOVER_API_KEY", "sk-a, sk-b")
    monkeypatch.setenv("CLOVER_DEFAULT_CHAT_TEMPLATE_KWARGS", '{"enable_thinking": false}')
    settings = Settings.load(None, {"served_model_name": ["x", "y"]})
    assert [key.get_secret_value() for key in settings.server.api_key] == ["sk-a", "sk-b"]
    assert settings.model.served_model_name == ("x", "y")
    assert settings.model.default_chat_template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"port": "http"}, "server.port"),
        ({"port": 70000}, "server.port"),
        ({"threshold": 2}, "model.threshold"),
        ({"silence_event_s": 240}, "server.silence_event_s"),
        ({"log_format": "xml"}, "server.log_format"),
        ({"default_chat_template_kwargs": "{x"}, "model.default_chat_template_kwargs"),
        ({"default_chat_template_kwargs": "[]"}, "model.default_chat_template_kwargs"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_setting_is_named(flags: dict[str, Any], word: str) -> None:
    with pytest.raises(LoadFailed, match=word):
        Settings.load(None, flags)


def test_a_bad_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOVER_BLOCK_SIZE", "many")
    with pytest.raises(LoadFailed, match=r"model\.block_size"):
        Settings.load()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[server\n", "clover.toml"),
        ("port = 1\n", "port"),
        ("[gpu]\nx = 1\n", "gpu"),
        ("[server]\nprot = 1\n", "prot"),
        ("[engine]\nport = 1\n", "engine.port"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(LoadFailed, match=word):
        Settings.load(write(tmp_path, text))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"nothing\.toml"):
        Settings.load(tmp_path / "nothing.toml")


def test_settings_do_not_change_and_do_not_show_keys() -> None:
    server = ServerSettings.model_validate({"api_key": ["sk-secret"]})
    with pytest.raises(ValidationError):
        server.port = 5
    assert "sk-secret" not in repr(server)


def test_names_are_unique_over_all_groups() -> None:
    names = [name for group in GROUPS.values() for name in group.model_fields]
    assert len(names) == len(set(names))
