"""`serve`: its flags are the settings, and what it does when the model cannot be loaded."""

from typing import Any

import pytest
from typer.testing import CliRunner

from clover_agent.cli import app
from clover_agent.cli import serve as command
from clover_agent.errors import LoadFailed
from clover_agent.settings import GROUPS, Settings

RUNNER = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"})


class RecordingServer:
    """In place of the server: remembers the settings of the application it was given."""

    settings: Settings

    def __init__(self, application: Any, settings: Any) -> None:
        self.gateway = application.state.gateway
        RecordingServer.settings = self.gateway.settings

    def run(self) -> None: ...


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[RecordingServer]:
    monkeypatch.setattr(command, "Server", RecordingServer)
    monkeypatch.setattr(command, "setup_logging", lambda level, form: None)
    return RecordingServer


def test_every_setting_is_a_flag_with_its_help() -> None:
    text = RUNNER.invoke(app, ["serve", "--help"]).output
    for group in GROUPS.values():
        for name, field in group.model_fields.items():
            assert f"--{name.replace('_', '-')}" in text
            assert (field.description or "?")[:20] in text


def test_flags_reach_the_settings(recorded: type[RecordingServer]) -> None:
    flags = ["--model", "replay:x.jsonl", "--served-model-name", "a", "--served-model-name", "b", "--port", "81"]
    more = ["--threshold", "0.9", "--trust-remote-code", "--api-key", "sk-a", "--tool-call-parser", "hermes"]
    result = RUNNER.invoke(
        app, ["serve", *flags, *more, "--default-chat-template-kwargs", '{"enable_thinking": false}']
    )
    assert result.exit_code == 0, result.output
    model, server = recorded.settings.model, recorded.settings.server
    assert (model.model, model.served_model_name, model.tool_call_parser) == ("replay:x.jsonl", ("a", "b"), "hermes")
    assert (model.threshold, model.trust_remote_code) == (0.9, True)
    assert model.default_chat_template_kwargs == {"enable_thinking": False}
    assert (server.port, [key.get_secret_value() for key in server.api_key]) == (81, ["sk-a"])


def test_without_flags_it_is_the_defaults(recorded: type[RecordingServer]) -> None:
    assert RUNNER.invoke(app, ["serve"]).exit_code == 0
    assert recorded.settings == Settings.load()


@pytest.mark.parametrize(
    ("flags", "word"),
    [(["--port", "http"], "server.port"), (["--config", "/nope.toml"], "nope.toml"), (["--x"], "--x")],
)
def test_a_bad_flag_is_named(flags: list[str], word: str) -> None:
    result = RUNNER.invoke(app, ["serve", *flags])
    assert result.exit_code == 2
    assert word in result.output


def test_a_model_that_cannot_be_loaded_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(settings: Settings) -> Any:
        raise LoadFailed("there is no model there")

    monkeypatch.setattr(command, "_load", load)
    monkeypatch.setattr(command, "setup_logging", lambda level, form: None)
    result = RUNNER.invoke(app, ["serve", "--port", "0"])
    assert result.exit_code == 1
    assert "Error: there is no model there" in result.output
