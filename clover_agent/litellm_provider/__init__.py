"""LiteLLM custom provider: `clover/<model>`, in this process or over HTTP.

    import litellm, clover_agent.litellm_provider as clover

    clover.register()                                          # the model that CLOVER_MODEL names, sprout by default
    litellm.completion("clover/sprout", messages=[...], tools=[...])
    litellm.completion("clover/any", api_base="http://127.0.0.1:8000/v1", messages=[...])

For the LiteLLM proxy: `custom_handler: clover_agent.litellm_provider.handler` (docs/litellm.md). LiteLLM has no plugin
discovery, so registration is explicit. What may be loaded in process is said by `register` or the environment, never
by a request.
"""

import litellm

from clover_agent.litellm_provider.handler import CloverLLM
from clover_agent.litellm_provider.host import HOST
from clover_agent.proxy_config import PROVIDER, model_info
from clover_agent.settings import Settings

__all__ = ["PROVIDER", "CloverLLM", "handler", "register"]

handler = CloverLLM(HOST)


def register(*models: str | Settings) -> CloverLLM:
    """Make `clover/…` known to LiteLLM, and `models` available in process; the handler.

    A model is what `clover-agent serve --model` takes, or whole settings; none at all: what the environment says
    (`CLOVER_MODEL` and the rest). It is loaded at its first request. Calling again adds models. Raises `LoadFailed` for
    one that does not exist.
    """
    known = [entry for entry in litellm.custom_provider_map if entry["provider"] != PROVIDER]
    litellm.custom_provider_map = [*known, {"provider": PROVIDER, "custom_handler": handler}]
    litellm.utils.custom_llm_setup()
    for model in models or (Settings.load(),):
        settings = model if isinstance(model, Settings) else Settings.load(flags={"model": model})
        for name, context in HOST.allow(settings).items():
            litellm.register_model({f"{PROVIDER}/{name}": {"litellm_provider": PROVIDER, **model_info(context)}})
    return handler
