"""`clover-agent demo`: the whole path on the embedded model, in one minute and without a GPU.

Starts a real gateway on a free port of the loopback interface, sends a streaming chat completion with tools through
the OpenAI SDK, runs the tool that the model chose, sends the result back and prints the answer. Knows nothing of the
engine: all that it shows came over HTTP.
"""

import ast
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from clover_agent.cli.live import BlockView, Silent, View
from clover_agent.cli.local import local_gateway

DEFAULT_REQUEST = "What's the weather in Lisbon?"
TEMPERATURES_C = {"lisbon": 22, "oslo": 4, "nairobi": 26, "lima": 19, "osaka": 17, "paris": 14, "berlin": 9}
OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def get_weather(city: str) -> str:
    """Get the current weather in a city"""
    degrees = TEMPERATURES_C.get(city.lower(), 12)
    return json.dumps({"city": city, "temperature_c": degrees, "sky": "clear" if degrees > 15 else "cloudy"})


def set_timer(minutes: int, label: str = "") -> str:
    """Start a countdown timer"""
    return json.dumps({"status": "started", "minutes": minutes, **({"label": label} if label else {})})


def calculate(expression: str) -> str:
    """Evaluate an arithmetic expression"""
    return json.dumps({"result": _arithmetic(ast.parse(expression, mode="eval").body)})


def _arithmetic(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_arithmetic(node.operand))
    raise ValueError("only numbers and + - * / are understood")


def _tool(function: Callable[..., str], properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    described = {"name": function.__name__, "description": function.__doc__, "parameters": parameters}
    return {"type": "function", "function": described}


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (get_weather, set_timer, calculate)}
TOOLS: list[Any] = [
    _tool(get_weather, {"city": {"type": "string", "description": "The name of the city"}}, ["city"]),
    _tool(
        set_timer,
        {
            "minutes": {"type": "integer", "description": "How many minutes"},
            "label": {"type": "string", "description": "A name for the timer"},
        },
        ["minutes"],
    ),
    _tool(calculate, {"expression": {"type": "string", "description": "For example 3 * (2 + 5)"}}, ["expression"]),
]


@dataclass
class _Answer:
    """One streamed completion, put together."""

    content: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Any = None

    def add(self, chunk: ChatCompletionChunk) -> None:
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            self.content += choice.delta.content or ""
            for delta in choice.delta.tool_calls or []:
                call = self.calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.id or ""
                if delta.function:
                    call["name"] += delta.function.name or ""
                    call["arguments"] += delta.function.arguments or ""


def demo(
    request: Annotated[str, typer.Argument(help="What to ask; the tools are get_weather, set_timer and calculate.")] = (
        DEFAULT_REQUEST
    ),
    model: Annotated[str, typer.Option(help="sprout, replay:FILE, or the path of a checkpoint.")] = "sprout",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line instead of the live view.")] = False,
    delay: Annotated[float, typer.Option(help="Seconds to wait after each denoising step, to watch it.")] = 0.15,
) -> None:
    """Watch a tool call being denoised, run it, and read the answer."""
    view: View = Silent() if as_json else BlockView(delay_s=delay)
    with local_gateway(model) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        view.opening(url, request, [tool["function"]["name"] for tool in TOOLS])
        outcome = _converse(client, request, view)
    if as_json:
        typer.echo(json.dumps(outcome, ensure_ascii=False))


def _converse(client: OpenAI, request: str, view: View) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": request}]
    first = _complete(client, messages, view)
    calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in first.calls.values()]
    final = first
    if first.calls:
        messages.append({"role": "assistant", "content": first.content or None, "tool_calls": _echo(first)})
        for call, parsed in zip(first.calls.values(), calls, strict=True):
            result = _run(parsed["name"], parsed["arguments"])
            view.tool_result(parsed["name"], call["arguments"], result)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        final = _complete(client, messages, view)
    rate = first.usage.model_extra["diffusion"]["tokens_per_forward"]
    view.closing(final.content, rate)
    return {"request": request, "tool_calls": calls, "answer": final.content, "tokens_per_forward": rate}


def _complete(client: OpenAI, messages: list[Any], view: View) -> _Answer:
    answer = _Answer()
    options: Any = {"include_usage": True, "include_drafts": view.wants_drafts}
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id, messages=messages, tools=TOOLS, stream=True, stream_options=options
    )
    with view.answering():
        for chunk in stream:
            answer.add(chunk)
            draft = (chunk.model_extra or {}).get("draft")
            if draft is not None:
                view.draft(draft["positions"])
            view.answer(answer.content, [f"{call['name']} {call['arguments']}" for call in answer.calls.values()])
    return answer


def _echo(answer: _Answer) -> list[dict[str, Any]]:
    return [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in answer.calls.values()
    ]


def _run(name: str, arguments: dict[str, Any]) -> str:
    """A tool's failure is a result too: the model is told, as an agent would tell it."""
    try:
        return FUNCTIONS[name](**arguments)
    except (TypeError, ValueError, SyntaxError, ZeroDivisionError) as error:
        return json.dumps({"error": str(error)})
