"""Reworded tools: other words, the same parameters, one word for one word everywhere; nothing of the held-out side."""

import random
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.sprout.rewording import broad_words, reword
from clover_agent.sprout.synthetic import Boxes, Synthesizer
from clover_agent.sprout.toolbox import AgentBox, SchemaBox, split_schemas
from clover_agent.sprout.values import is_held_out
from clover_agent.types import Tool

from .test_synthetic import KINDS, check_calls

TOOL = Tool(
    "getRingAtoms",
    "Retrieve the number of ring atoms in a Compound",
    {
        "type": "object",
        "properties": {"compound": {"type": "string", "description": "The compound (e.g., benzene)"}, "free": {}},
        "required": ["compound"],
    },
)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_a_word_is_replaced_by_one_word_everywhere(seed: int) -> None:
    made = reword(random.Random(seed), TOOL, ["lantern"], lambda: "Zubira")
    assert made.parameters is not None
    assert list(made.parameters["properties"]) == ["compound", "free"]
    assert made.parameters["required"] == ["compound"]
    found = re.fullmatch(r"Retrieve the number of (\w+) (\w+) in a (\w+)", made.description)
    assert found
    ring, atoms, compound = found.groups()
    assert (ring, atoms) in [(r, a) for r in ("ring", "lantern", "zubira") for a in ("atoms", "lanterns", "zubiras")]
    changed = made.description != TOOL.description
    assert made.name == (f"get_{ring}_{atoms}" if changed else TOOL.name)
    assert compound in ("Compound", "Lantern", "Zubira")
    assert made.parameters["properties"]["compound"]["description"] == f"The {compound.lower()} (e.g., benzene)"


def test_broad_words_leave_out_the_evaluation_side(sample_schemas: list[dict[str, Any]]) -> None:
    training, _ = split_schemas(sample_schemas)
    words = broad_words(training)
    assert len(words) > 100
    assert not any(is_held_out(word) or word.endswith("s") for word in words)


def test_reworded_examples_are_right_by_their_own_tools(sample_schemas: list[dict[str, Any]]) -> None:
    rng = random.Random(2)
    training, _ = split_schemas(sample_schemas)
    words = broad_words(training)
    made = Synthesizer(rng, Boxes(SchemaBox(rng, training, words=words), AgentBox(rng, words=words)))
    known = {tool.description.rstrip(".").lower() for _, tool in training}
    new = 0
    for kind in KINDS * 15:
        example = made.example(kind, 2)
        names = [tool.name for tool in example.tools]
        assert len(set(names)) == len(names)
        check_calls(example)
        new += any(tool.description and tool.description.rstrip(".").lower() not in known for tool in example.tools)
    assert new > 30
