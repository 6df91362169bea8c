"""What requests ask, compiled: choices of tools, response formats, the policy for schemas, the cache."""

import threading
from typing import Any

import pytest

from clover_agent.errors import InvalidRequest, InvalidSchema, LoadFailed
from clover_agent.formats import FORMATS
from clover_agent.grammar import GrammarCompiler, GrammarConstraint, check_call
from clover_agent.types import ResponseFormat, Tool, ToolChoice
from tests.grammar.harness import FORMAT_NAMES, calls, compiler, constraint, decode, encode, legal, vocabulary
from tests.grammar.tools import TOOLS

REQUIRED = ToolChoice("required")
WEATHER = next(tool for tool in TOOLS if tool.name == "get_weather")


def named(name: str) -> ToolChoice:
    return ToolChoice("required", (name,))


def test_nothing_asked_nothing_held() -> None:
    assert compiler().constrain() is None
    assert compiler().constrain(thinking=True) is None
    assert compiler().constrain(tools=[], tool_choice=ToolChoice("none")) is None


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_none_leaves_text_and_no_call(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=ToolChoice("none"))
    assert held.free
    assert held.accepting()
    control = set(vocabulary("small").control.values())
    assert set(legal(held)) & control == held.frame.end_ids
    assert held.valid_prefix(encode("any text { <")) == len(encode("any text { <"))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_auto_is_free_until_a_call_begins(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS)
    held.consume(encode("Let me see.\n\n"))
    assert held.free
    assert held.accepting()
    call = encode(FORMATS[format_name].encode("get_weather", {"city": "Rome"}))
    assert held.valid_prefix(call) == len(call)
    held.consume(call)
    assert held.accepting()
    assert held.valid_prefix(encode("text after a call")) == 0
    begun = constraint(format_name, tools=TOOLS)
    begun.consume(call[:1])
    assert not begun.free
    assert not begun.accepting()


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_required_begins_with_a_call(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=REQUIRED)
    assert held.forced()[0] == vocabulary("small").control["<tool_call>"]
    assert not held.accepting()
    assert held.close(500) is None  # a call that the model has not begun is not made up


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_a_named_tool_without_arguments_needs_no_model(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=named("stop"), parallel_tool_calls=False)
    ids = held.forced()
    held.consume(ids)
    assert held.complete
    assert calls(decode(ids), format_name, TOOLS) == [("stop", "{}")]


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_allowed_tools_narrow_the_choice(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=ToolChoice("auto", ("stop", "tag")))
    for name, arguments, is_legal in (
        ("stop", {}, True),
        ("tag", {"tags": ["a"]}, True),
        ("get_weather", {"city": "x"}, False),
    ):
        ids = encode(FORMATS[format_name].encode(name, arguments))
        assert (held.valid_prefix(ids) == len(ids)) == is_legal


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ((WEATHER,), named("nothing"), "nothing"),
        ((), REQUIRED, "no tool"),
        ((WEATHER,) * 129, ToolChoice(), "129"),
    ],
)
def test_choices_that_cannot_be_met(tools: tuple[Tool, ...], choice: ToolChoice, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        compiler().constrain(tools=tools, tool_choice=choice)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_128_tools_in_one_grammar(format_name: str) -> None:
    tools = [Tool(f"tool_{n}", parameters=WEATHER.parameters) for n in range(128)]
    held = constraint(format_name, tools=tools, tool_choice=REQUIRED)
    ids = encode(FORMATS[format_name].encode("tool_127", {"city": "Rome"}))
    assert held.valid_prefix(ids) == len(ids)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize(
    "parameters", [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"enum": [1, 2]}]
)
def test_parameters_that_are_no_object_are_wrapped(format_name: str, parameters: dict[str, Any]) -> None:
    tool = Tool("f", parameters=parameters)
    value: Any = {"string": "abc", "array": [1, 2]}.get(str(parameters.get("type")), 2)
    held = constraint(format_name, tools=[tool], tool_choice=REQUIRED, parallel_tool_calls=False)
    text = FORMATS[format_name].encode("f", {"value": value})
    assert held.valid_prefix(encode(text)) == len(encode(text))
    ((_, arguments),) = calls(text, format_name, [tool])
    check_call(tool, arguments)


def test_declared_parameters_only_where_the_schema_is_silent() -> None:
    undeclared = encode(FORMATS["hermes_json"].encode("f", {"a": 1, "b": 2}))
    for more, is_legal in (
        ({}, False),
        ({"additionalProperties": True}, True),
        ({"additionalProperties": False}, False),
    ):
        tool = Tool("f", parameters={"type": "object", "properties": {"a": {"type": "integer"}}, **more})
        held = constraint(tools=[tool], tool_choice=REQUIRED)
        assert (held.valid_prefix(undeclared) == len(undeclared)) == is_legal


class TestResponseFormat:
    def test_json_object(self) -> None:
        held = constraint(response_format=ResponseFormat("json_object"))
        for text, is_legal in (('{"a": [1, null]}', True), ("[1]", False), (' {"a": 1}', False), ('{"a":1}', False)):
            assert (held.valid_prefix(encode(text)) == len(encode(text))) == is_legal, text

    def test_beside_tools_either_a_call_or_the_answer(self) -> None:
        asked = ResponseFormat(
            "json_schema", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        )
        held = constraint(tools=TOOLS, response_format=asked)
        for text in (FORMATS["hermes_json"].encode("stop", {}), '{"a": 3}'):
            fork = held.fork()
            assert fork.valid_prefix(encode(text)) == len(encode(text))
            fork.consume(encode(text))
            assert fork.accepting()
        assert not held.free
        assert held.valid_prefix(encode("Hello")) == 0

    def test_a_required_call_leaves_no_room_for_it(self) -> None:
        held = constraint(tools=TOOLS, tool_choice=REQUIRED, response_format=ResponseFormat("json_object"))
        assert held.valid_prefix(encode("{")) == 0

    def test_no_schema_is_any_json(self) -> None:
        held = constraint(response_format=ResponseFormat("json_schema"))
        assert held.valid_prefix(encode("[1, 2]")) == len(encode("[1, 2]"))


LOOSE = {
    "type": "object",
    "properties": {"a": {"type": "array", "uniqueItems": True}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


class TestPolicy:
    def test_not_strict_is_loosened_at_the_spot(self) -> None:
        compiled = compiler().constrain(tools=[Tool("f", parameters=LOOSE)], tool_choice=REQUIRED)
        assert compiled is not None
        assert compiled.exactness == "loosened"
        assert [p.keyword for p in compiled.problems] == ["uniqueItems"]
        loose = encode(FORMATS["hermes_json"].encode("f", {"a": [1, 1], "b": 2}))
        wrong = encode(FORMATS["hermes_json"].encode("f", {"a": [1, 1], "b": "2"}))
        assert compiled.constraint.valid_prefix(loose) == len(loose)
        assert compiled.constraint.valid_prefix(wrong) < len(wrong)

    def test_strict_is_refused_with_keyword_and_place(self) -> None:
        with pytest.raises(InvalidSchema, match=r"uniqueItems.*#/properties/a") as caught:
            compiler().constrain(tools=[Tool("f", parameters=LOOSE, strict=True)])
        assert caught.value.param == "tools"
        with pytest.raises(InvalidSchema, match="uniqueItems") as caught:
            compiler().constrain(response_format=ResponseFormat("json_schema", LOOSE, strict=True))
        assert caught.value.param == "response_format"

    @pytest.mark.parametrize("format_name", FORMAT_NAMES)
    @pytest.mark.parametrize(
        "parameters",
        [
            {"type": "objekt"},
            {"properties": []},
            {"type": "object", "properties": {"a": {"type": "string", "required": True}}},
            {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}},
            {"oneOf": [{"type": "object"}, {"properties": {}}]},
            {"type": "object", "properties": {"a": {"pattern": "(?<!x)(a", "format": "date"}}},
            {"type": "object", "properties": {"a": False}, "required": ["a"]},
            {"allOf": [{"type": "string"}, {"type": "object"}]},
            {"type": "object", "properties": {"a": {"minimum": 5, "maximum": 1}}, "required": ["a"]},
            {"enum": []},
            {"type": "object", "required": ["x"], "additionalProperties": False},
            {"type": "object", "patternProperties": {"a": {}, "b": {"type": "null"}}},
            {"type": "object", "properties": {"s": {"type": "string", "minLength": 9, "maxLength": 3}}},
            {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}},
        ],
    )
    def test_no_schema_that_is_not_strict_is_an_error(self, format_name: str, parameters: dict[str, Any]) -> None:
        compiled = compiler(format_name).constrain(tools=[Tool("f", parameters=parameters), WEATHER])
        assert compiled is not None
        weather = encode(FORMATS[format_name].encode("get_weather", {"city": "Rome"}))
        assert compiled.constraint.valid_prefix(weather) == len(weather)

    def test_hostile_schemas_cost_little_or_are_refused(self) -> None:
        exploding: dict[str, Any] = {"type": "string", "pattern": "^((a{1,300}){1,300}){1,300}$"}
        wide = {"type": "object", "properties": {f"p{n}": {"type": "array", "maxItems": 10**8} for n in range(50)}}
        for schema in (exploding, wide):
            compiled = compiler().constrain(response_format=ResponseFormat("json_schema", schema))
            assert compiled is not None
            assert compiled.exactness == "loosened"


class TestCache:
    def test_the_same_content_is_compiled_once(self) -> None:
        first, second = (compiler().constrain(tools=[WEATHER]) for _ in range(2))
        assert first is not None
        assert second is not None
        assert isinstance(first.constraint, GrammarConstraint)
        assert isinstance(second.constraint, GrammarConstraint)
        assert first.constraint is not second.constraint
        assert first.constraint._lexer is second.constraint._lexer

    def test_requests_do_not_see_each_other(self) -> None:
        first, second = (constraint(tools=[WEATHER], tool_choice=REQUIRED) for _ in range(2))
        first.consume(first.forced())
        assert second.forced()[0] == vocabulary("small").control["<tool_call>"]

    def test_least_recently_used_goes_first(self) -> None:
        known = vocabulary("small")
        small = GrammarCompiler(
            known, known.vocab_size, [known.control["<|im_end|>"]], FORMATS["hermes_json"], cache_size=2
        )
        for tool in (TOOLS[2], TOOLS[3], TOOLS[2], TOOLS[4]):
            small.constrain(tools=[tool])
        assert [TOOLS[2].name in key for key in small._cache] == [True, False]

    def test_many_threads(self) -> None:
        failed: list[Exception] = []

        def ask(n: int) -> None:
            try:
                for tool in TOOLS:
                    held = constraint(tools=[tool], tool_choice=REQUIRED, parallel_tool_calls=bool(n % 2))
                    held.consume(held.forced())
            except Exception as error:  # told to the test's own thread
                failed.append(error)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed

    def test_a_broken_grammar_is_not_used_again(self) -> None:
        first = constraint(tools=[WEATHER], tool_choice=REQUIRED)
        first._lexer.broken = True
        second = constraint(tools=[WEATHER], tool_choice=REQUIRED)
        assert second._lexer is not first._lexer


def test_markers_must_be_control_tokens() -> None:
    class Without:
        def __init__(self) -> None:
            self.control = {"<|im_end|>": 0}
            self.vocab_size = 1

        def token_bytes(self, id_: int) -> bytes:
            return b"a"

        def encode_text(self, text: str) -> list[int]:
            return []

    with pytest.raises(LoadFailed, match="tool_call"):
        GrammarCompiler(Without(), 1, [0], FORMATS["hermes_json"])
    with pytest.raises(LoadFailed, match="end token"):
        GrammarCompiler(vocabulary("small"), 600, [], FORMATS["hermes_json"])


def test_a_padded_head_has_a_wider_mask() -> None:
    compiled = compiler(head=77).constrain(tools=[WEATHER])
    assert compiled is not None
    mask = compiled.constraint.mask()
    size = vocabulary("small").vocab_size + 77
    assert mask.shape == (-(-size // 32),)
    assert isinstance(compiled.constraint, GrammarConstraint)
    assert max(legal(compiled.constraint)) < vocabulary("small").vocab_size


@pytest.mark.parametrize("format_name", ["hermes_json", "qwen_xml"])
def test_a_schema_that_requires_itself_without_end_is_refused(format_name: str) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
    tool = Tool("f", parameters={"$defs": {"node": node}, "$ref": "#/$defs/node"})
    with pytest.raises(InvalidSchema, match="without end"):
        constraint(format_name, tools=[tool])
