"""Real records: read, put in schema order, restyled together with their calls, and written back."""

import random
from typing import Any

import jsonschema
import pytest

from clover_agent.errors import LoadFailed
from clover_agent.sprout.corpus import example_of, in_schema_order, record_of
from clover_agent.sprout.records import RecordMix
from clover_agent.sprout.synthetic import Synthesizer


def test_a_record_survives_the_round_trip(sample_records: list[dict[str, Any]]) -> None:
    for record in sample_records:
        example = example_of(record)
        again = example_of(record_of(example))
        assert (again.tools, again.messages, again.calls) == (example.tools, example.messages, example.calls)
        assert [dict(call.arguments) for call in example.calls] == [c["arguments"] for c in record["calls"] or ()]


def test_a_broken_record_is_named() -> None:
    with pytest.raises(LoadFailed, match="snips/7"):
        example_of({"id": "snips/7", "tools": []})


def test_arguments_follow_the_schema_however_deep() -> None:
    inner = {"type": "object", "properties": {"p": {}, "q": {}}}
    schema = {"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": inner}}}
    ordered = in_schema_order({"x": 0, "b": [{"q": 1, "p": 2}], "a": 3}, schema)
    assert list(ordered) == ["a", "b", "x"]
    assert list(ordered["b"][0]) == ["p", "q"]


def test_restyled_records_still_call_offered_tools_validly(
    sample_records: list[dict[str, Any]], synthesizer: Synthesizer
) -> None:
    mix = RecordMix(random.Random(3), sample_records, synthesizer, frozenset())
    assert mix.sources == {"snips", "nlued", "polyai", "sealtools", "tm4"}
    for source in sorted(mix.sources) * 12:
        example = mix.example(source, 2)
        names = [tool.name for tool in example.tools]
        assert len(set(names)) == len(names)
        schemas = {tool.name: tool.parameters or {} for tool in example.tools}
        for call in example.calls:
            jsonschema.Draft202012Validator(schemas[call.name]).validate(dict(call.arguments))
        for message in example.messages:
            assert all(call.name in schemas for call in message.tool_calls)


def test_tools_of_other_corpora_are_left_out(sample_records: list[dict[str, Any]], synthesizer: Synthesizer) -> None:
    foreign = {"type": "function", "function": {"name": "ForeignTool", "parameters": {"type": "object"}}}
    records = [{**record, "tools": [*record["tools"], foreign]} for record in sample_records]
    mix = RecordMix(random.Random(4), records, synthesizer, frozenset())
    for source in sorted(mix.sources) * 8:
        assert "foreign" not in " ".join(tool.name.lower() for tool in mix.example(source, 6).tools)
