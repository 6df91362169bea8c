"""`litellm-config`: the examples are what it prints, and what it prints is YAML that says what was asked."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from clover_agent.cli import app

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "litellm"


def printed(*flags: str) -> str:
    result = RUNNER.invoke(app, ["litellm-config", *flags])
    assert result.exit_code == 0, result.output
    return result.output


def config(*flags: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(printed(*flags))
    return read


def test_the_examples_are_what_it_prints() -> None:
    assert printed("--name", "clover") == (EXAMPLES / "config.yaml").read_text()
    two = printed("--name", "clover", "--gateway", "8001", "--gateway", "8002")
    assert two == (EXAMPLES / "two-gateways.yaml").read_text()


def test_in_process_the_model_is_said_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy may be started in another folder, so a path is made absolute."""
    (tmp_path / "my: answers.jsonl").write_text('{"reply": {"content": "Hi"}}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOVER_SERVED_MODEL_NAME", "mine, other")
    read = config("--model", "replay:my: answers.jsonl", "--max-model-len", "4000")
    assert read["environment_variables"] == {
        "CLOVER_MODEL": f"replay:{tmp_path}/my: answers.jsonl",
        "CLOVER_SERVED_MODEL_NAME": "mine,other",
        "CLOVER_MAX_MODEL_LEN": "4000",
    }
    (deployment,) = read["model_list"]
    assert deployment["model_name"] == "mine"
    assert deployment["litellm_params"]["model"] == "clover/mine"
    assert "api_base" not in deployment["litellm_params"]
    assert deployment["model_info"]["max_input_tokens"] == 4000


def test_the_first_lines_say_how_to_start_it() -> None:
    assert "litellm --config config.yaml --host 127.0.0.1 --port 4444\n" in printed("--port", "4444")


def test_gateways_are_ports_hosts_or_urls() -> None:
    given = ["8000", "10.0.0.2:8001", "https://gpu.example/clover/", "http://localhost:1/v1/"]
    read = config(*(word for one in given for word in ("--gateway", one)))
    assert [deployment["litellm_params"]["api_base"] for deployment in read["model_list"]] == [
        "http://127.0.0.1:8000/v1",
        "http://10.0.0.2:8001/v1",
        "https://gpu.example/clover/v1",
        "http://localhost:1/v1",
    ]
    assert "environment_variables" not in read
    assert read["router_settings"]["optional_pre_call_checks"] == ["session_affinity"]


def test_one_deployment_is_never_cooled_down() -> None:
    for flags in ((), ("--gateway", "8000")):
        assert config(*flags)["router_settings"] == {"disable_cooldowns": True, "num_retries": 0}


def test_a_model_that_does_not_exist_is_said() -> None:
    result = RUNNER.invoke(app, ["litellm-config", "--model", "/nowhere"])
    assert result.exit_code == 2
    assert "'/nowhere' is no model" in result.output
