"""`clover-agent bench` against the real gateway."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from clover_agent.cli import app
from clover_agent.cli.local import local_gateway


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    replay = tmp_path_factory.mktemp("bench") / "answers.jsonl"
    replay.write_text(json.dumps({"when": {}, "reply": {"content": "one two three " * 40}}) + "\n")
    with local_gateway(f"replay:{replay}") as at:
        yield at


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_figures_of_each_level(stream: str, url: str, tmp_path: Path) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    flags = ("--requests", "3", "--max-tokens", "40", "--prompt-tokens", "20")
    result = bench("--url", url, "--concurrency", "1,3", stream, *flags, "--json", str(out), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    assert "3 / 0" in result.output
    found = json.loads(out.read_text())
    assert set(found) == {"1", "3"}
    for level in found.values():
        assert (level["requests"], level["failed"]) == (3, 0)
        assert level["tokens_per_s"] > 0
        assert level["ttft_p50"] <= level["ttft_p99"]
        assert (level["gap_p50"] is None) == (stream == "--no-stream")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_server_that_refuses_is_told(url: str) -> None:
    result = bench("--url", url, "--model", "no-such-model")
    assert result.exit_code == 1
    assert "no-such-model" in result.output


def test_nobody_there(unused_tcp_port: int) -> None:
    result = bench("--url", f"127.0.0.1:{unused_tcp_port}")
    assert result.exit_code == 1
    assert "cannot be reached" in result.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--concurrency", "1,two"), "must be numbers"),
        (("--concurrency", "0"), "at least 1"),
        (("--extra-body", "[]"), "JSON object"),
    ],
)
def test_bad_options(flags: tuple[str, ...], said: str) -> None:
    result = bench("--url", "http://127.0.0.1:9", *flags)
    assert result.exit_code == 2
    assert said in result.output
