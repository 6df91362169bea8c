"""What sprout's tests share: the sample that ships with the package, and a synthesizer over it."""

import random
from typing import Any

import pytest

from clover_agent.sprout.corpus import read_records
from clover_agent.sprout.sample import records_path, schemas_path
from clover_agent.sprout.synthetic import Boxes, Synthesizer
from clover_agent.sprout.toolbox import AgentBox, SchemaBox, split_schemas


@pytest.fixture(scope="session")
def sample_records() -> list[dict[str, Any]]:
    return list(read_records(records_path()))


@pytest.fixture(scope="session")
def sample_schemas() -> list[dict[str, Any]]:
    return list(read_records(schemas_path()))


@pytest.fixture
def synthesizer(sample_schemas: list[dict[str, Any]]) -> Synthesizer:
    rng = random.Random(11)
    training, _ = split_schemas(sample_schemas)
    return Synthesizer(rng, Boxes(SchemaBox(rng, training), AgentBox(rng)))
