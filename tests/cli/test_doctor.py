"""The command: table or JSON, and the exit code."""

import json

from typer.testing import CliRunner

from clover_agent.cli import app
from tests.doctor.servers import GoodServer, serving
from tests.doctor.test_stages import NoDone


def test_a_table_and_exit_code_0() -> None:
    with serving(GoodServer()) as url:
        result = CliRunner().invoke(app, ["doctor", "--url", url, "--timeout", "20"])
    assert result.exit_code == 0, result.output
    assert "required, named" in result.output
    assert "fail" not in result.output


def test_what_failed_comes_with_advice_and_exit_code_1() -> None:
    with serving(NoDone()) as url:
        result = CliRunner().invoke(app, ["doctor", "--url", url, "--timeout", "20"])
    assert result.exit_code == 1
    assert "streaming: Send it" in result.output


def test_json() -> None:
    with serving(NoDone()) as url:
        result = CliRunner().invoke(app, ["doctor", "--url", url, "--timeout", "20", "--json"])
    assert result.exit_code == 1
    rows = {row["stage"]: row["status"] for row in json.loads(result.stdout)}
    assert rows["streaming"] == "fail"
    assert rows["tool result"] == "pass"
