"""The stages in order. A stage that needs another one is skipped where that one did not pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clover_agent.doctor import chat, faces, models
from clover_agent.doctor.report import Result, Skip, Trouble
from clover_agent.doctor.wire import Endpoint


@dataclass(frozen=True, slots=True)
class Stage:
    """One check: it returns what it saw, raises `Trouble` or `Skip`."""

    name: str
    check: Callable[[Endpoint, str], str]
    needs: tuple[str, ...] = ("model",)


REACHABLE = Stage("reachable", models.reachable, ())
STAGES: tuple[Stage, ...] = (
    Stage("model", models.listed, ("reachable",)),
    Stage("context length", models.context),
    Stage("plain chat", chat.plain, ("reachable",)),
    Stage("streaming", chat.streaming, ("plain chat",)),
    Stage("one tool call", chat.one_call, ("plain chat",)),
    Stage("tool result", chat.tool_result, ("plain chat",)),
    Stage("parallel calls", chat.parallel, ("one tool call",)),
    Stage("required, named", chat.forced, ("plain chat",)),
    Stage("json_schema", chat.json_schema, ("plain chat",)),
    Stage("errors", chat.errors, ("plain chat",)),
    Stage("responses", faces.responses, ("plain chat",)),
    Stage("messages", faces.messages, ("plain chat",)),
)


def examine(endpoint: Endpoint, model: str | None = None) -> Iterator[Result]:
    """The result of each stage as it is known. Without `model`: the first that the server lists."""
    passed: set[str] = set()
    for stage in (REACHABLE, *STAGES):
        if model is None and stage is not REACHABLE and "reachable" in passed:
            try:
                model = models.first(endpoint)
            except Trouble as trouble:
                yield Result("model", "fail", str(trouble), trouble.advice or "Give its name: --model.")
                yield from (Result(left.name, "skipped", "needs: model") for left in STAGES[1:])
                return
        result = _run(stage, endpoint, model or "", passed)
        if result.status == "pass":
            passed.add(stage.name)
        yield result


def _run(stage: Stage, endpoint: Endpoint, model: str, passed: set[str]) -> Result:
    missing = [name for name in stage.needs if name not in passed]
    if missing:
        return Result(stage.name, "skipped", f"needs: {', '.join(missing)}")
    try:
        return Result(stage.name, "pass", stage.check(endpoint, model))
    except Skip as skip:
        return Result(stage.name, "skipped", str(skip))
    except Trouble as trouble:
        return Result(stage.name, "fail", str(trouble), trouble.advice)
