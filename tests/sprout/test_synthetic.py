"""Synthetic examples keep their promises: right calls are valid, values are said, no distractor fits."""

import random
from typing import Any

import jsonschema
import pytest

from clover_agent.sprout.corpus import Example
from clover_agent.sprout.results import ResultMaker, sentence
from clover_agent.sprout.synthetic import Boxes, Synthesizer
from clover_agent.sprout.toolbox import AgentBox, SchemaBox, split_schemas, subject
from clover_agent.sprout.values import NUMBER_WORDS, language

KINDS = ("single", "pair", "none", "chat", "answer", "history")


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


def check_calls(example: Example) -> None:
    said = next(m.content for m in reversed(example.messages) if m.role == "user").casefold()
    schemas = {tool.name: tool.parameters for tool in example.tools}
    for call in example.calls:
        schema = {**(schemas[call.name] or {}), "additionalProperties": False}
        jsonschema.Draft202012Validator(schema).validate(dict(call.arguments))
        for leaf in leaves(dict(call.arguments)):
            if isinstance(leaf, bool):
                continue
            forms = {str(leaf), str(leaf).replace("_", " "), f"{leaf:,}" if isinstance(leaf, int) else str(leaf)}
            if isinstance(leaf, int) and 0 <= leaf < len(NUMBER_WORDS):
                forms.add(NUMBER_WORDS[leaf])
            assert any(form.casefold() in said for form in forms), (leaf, said)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_right_by_their_own_tools(synthesizer: Synthesizer, kind: str) -> None:
    for distractors in (0, 1, 3, 6) * 10:
        example = synthesizer.example(kind, distractors)
        names = [tool.name for tool in example.tools]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in names)
        assert bool(example.calls) != bool(example.answer)
        check_calls(example)


def test_no_tool_fits_means_that_the_asked_tool_is_not_offered(synthesizer: Synthesizer) -> None:
    everyday = {name: spec["names"][0] for spec in language("agent_tools") for name in spec["names"]}
    for _ in range(100):
        example = synthesizer.example("none", 3)
        assert example.answer
        assert not example.calls
        subjects = [everyday.get(tool.name, subject(tool.name)) for tool in example.tools]
        assert len(set(subjects)) == len(subjects)


def test_an_answer_holds_every_value_of_the_result(synthesizer: Synthesizer) -> None:
    for _ in range(80):
        example = synthesizer.example("answer", 1)
        assert example.messages[-1].role == "tool"
        assert example.answer is not None
    maker = ResultMaker(random.Random(0))
    assert "°C" in sentence({"temperature_c": 21})
    drawn = synthesizer.example("single", 0)
    for _ in range(80):
        result, answer = maker.draw(drawn.calls[0], ("status", "price_usd"))
        for part in result.strip("{}[]").replace('"', "").split(", "):
            assert part.split(": ")[-1] in answer


def test_the_evaluation_side_shares_no_schema_with_training(sample_schemas: list[dict[str, Any]]) -> None:
    training, held_out = split_schemas(sample_schemas)
    assert training
    assert held_out
    assert not {tool.name.lower() for _, tool in training} & {tool.name.lower() for _, tool in held_out}


def test_the_same_seed_draws_the_same_examples(sample_schemas: list[dict[str, Any]]) -> None:
    def draw() -> list[Example]:
        rng = random.Random(5)
        training, _ = split_schemas(sample_schemas)
        made = Synthesizer(rng, Boxes(SchemaBox(rng, training), AgentBox(rng)))
        return [made.example(kind, 2) for kind in KINDS * 3]

    assert draw() == draw()
