"""Log lines and meters; the metrics' text is tested where it is served."""

import json
import logging
from collections.abc import Iterator

import pytest

from clover_agent.telemetry import Metrics, request_id, setup_logging
from clover_agent.types import DiffusionStats, Finished, Started, TextDelta, Usage


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Put the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    noisy = logging.getLogger("sse_starlette").level
    yield
    root.handlers[:], root.level = handlers, level
    logging.getLogger("sse_starlette").setLevel(noisy)


@pytest.mark.usefixtures("root_logger")
def test_a_json_line_has_the_fields_and_the_request_id(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info", "json")
    token = request_id.set("req_1")
    logging.getLogger("x").info("answer", extra={"fields": {"model": "sprout", "seconds": 1.5}})
    request_id.reset(token)
    logging.getLogger("x").debug("not shown")
    line = json.loads(capsys.readouterr().err)
    assert {
        "event": "answer",
        "level": "info",
        "model": "sprout",
        "request_id": "req_1",
        "seconds": 1.5,
    }.items() <= line.items()


@pytest.mark.usefixtures("root_logger")
def test_a_text_line_is_readable_and_keeps_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("debug", "text")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("x").exception("it broke", extra={"fields": {"code": 5}})
    text = capsys.readouterr().err
    assert "error   it broke code=5\nTraceback" in text
    assert "ValueError: why" in text


@pytest.mark.usefixtures("root_logger")
def test_answers_are_not_logged_even_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("debug", "text")
    logging.getLogger("sse_starlette.sse").debug("chunk: %s", b"the answer")
    assert "the answer" not in capsys.readouterr().err


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"clover:{name}", {"model_name": "m", **labels})


def test_a_request_waits_then_runs_then_is_gone() -> None:
    metrics = Metrics()
    meter = metrics.meter("m")
    gauges = []
    for event in (Started(3), TextDelta("a"), Finished("stop", Usage(3, 4, 0, DiffusionStats(2, 3, 1, 4)))):
        gauges.append((value(metrics, "num_requests_waiting"), value(metrics, "num_requests_running")))
        meter.event(event)
    assert gauges == [(1, None), (1, None), (0, 1)]
    assert meter.close()["outcome"] == "stop"
    assert value(metrics, "num_requests_running") == 0
    assert value(metrics, "request_success_total", finished_reason="stop") == 1
    assert value(metrics, "tokens_per_forward_sum") == 2
    assert value(metrics, "e2e_request_latency_seconds_count") == 1


@pytest.mark.parametrize("began", [True, False])
def test_a_request_that_ends_early_leaves_no_trace_in_the_gauges(began: bool) -> None:
    metrics = Metrics()
    meter = metrics.meter("m")
    if began:
        meter.event(TextDelta("a"))
    assert meter.close()["outcome"] == "cancelled"
    assert value(metrics, "request_cancelled_total") == 1
    assert value(metrics, "num_requests_waiting") == 0
    assert value(metrics, "num_requests_running") in (0, None)
