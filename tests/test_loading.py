import json
import shutil
from pathlib import Path

import pytest

from clover_agent.errors import LoadFailed
from clover_agent.loading import EMBEDDED, announced, load_service
from clover_agent.settings import ModelSettings, Settings


def settings(**model: object) -> Settings:
    return Settings(model=ModelSettings.model_validate(model))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of sprout's directory, to be changed."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "mine"))


def test_a_checkpoint_is_announced_as_it_is_served(checkpoint: Path) -> None:
    wanted = settings(model=str(checkpoint), max_model_len=1000)
    assert announced(wanted) == (("mine",), 1000)
    service = load_service(wanted)
    assert (service.model_ids, service.max_context) == announced(wanted)


def test_a_checkpoint_with_its_own_code_is_not_served_as_another_model(checkpoint: Path) -> None:
    """Its tensors may fit and its answers still be others."""
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "clover_moe", "auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadFailed, match="brings its own code"):
        load_service(settings(model=str(checkpoint)))


def test_what_is_no_model(tmp_path: Path) -> None:
    for name in ("DiffuSpace/Clover-35B-A3B-Preview", str(tmp_path)):
        with pytest.raises(LoadFailed, match="is no model"):
            load_service(settings(model=name))
