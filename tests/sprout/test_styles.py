"""Restyled tools: legal names, nothing lost, and calls that follow."""

import random
import re

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.sprout.corpus import Call
from clover_agent.sprout.styles import NAME_STYLES, restyle, spell
from clover_agent.sprout.synthetic import tool_call
from clover_agent.types import Tool

names = st.from_regex(r"[a-z]{1,8}([A-Z][a-z]{1,6}|_[a-z0-9]{1,6}|-[a-z]{1,6}){0,12}", fullmatch=True)


@settings(deadline=None, max_examples=100)
@given(name=names, style=st.sampled_from(NAME_STYLES))
def test_spelled_names_are_legal_for_the_api(name: str, style: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spell(name, style))


def test_styles() -> None:
    spelled = {style: spell("getHTTPPage", style) for style in NAME_STYLES}
    assert spelled == {
        "snake": "get_http_page",
        "camel": "getHttpPage",
        "pascal": "GetHttpPage",
        "kebab": "get-http-page",
    }


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 10_000), style=st.sampled_from(NAME_STYLES), keys=st.sets(names, max_size=5))
def test_a_restyled_call_is_valid_for_the_restyled_tool(seed: int, style: str, keys: set[str]) -> None:
    order = sorted(keys)
    properties = {key: {"type": "integer", "description": f"The {key} (e.g., 1, 2)"} for key in order}
    tool = Tool("getThing", "Retrieve a thing", {"type": "object", "properties": properties, "required": order[::2]})
    call = Call("getThing", {key: n for n, key in enumerate(order)})
    styled = restyle(random.Random(seed), tool, style)
    new = styled.call(call)
    schema = {**(styled.tool.parameters or {}), "additionalProperties": False}
    jsonschema.Draft202012Validator(schema).validate(dict(new.arguments))
    assert new.name == styled.tool.name
    assert {styled.renamed[key]: value for key, value in call.arguments.items()} == dict(new.arguments)
    assert list(new.arguments) == list(schema["properties"])
    assert styled.tool_call(tool_call("c", call)) == tool_call("c", new)
