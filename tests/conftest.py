"""What tests of several folders share."""

from pathlib import Path

import pytest


@pytest.fixture
def modules_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Transformers copies a checkpoint's code before it imports it: not into the home directory."""
    import transformers.dynamic_module_utils

    cache = tmp_path_factory.mktemp("modules")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(cache))
    monkeypatch.syspath_prepend(str(cache))
    return cache
