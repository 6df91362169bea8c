"""Configuration of the LiteLLM proxy as YAML, and what LiteLLM wants to know of a model, in its own words.

Plain text: does not import litellm, so printing a configuration needs neither it nor a model's weights.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROVIDER = "clover"
HANDLER = "clover_agent.litellm_provider.handler"
# LiteLLM refuses these for custom providers unless a deployment allows them.
ALLOWED_PARAMS = ("reasoning_effort", "thinking", "verbosity")
AFFINITY_S = 3600


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the proxy serves as `name`. `gateways` are base URLs of running gateways; none: the engine is loaded in the
    proxy's own process, and `environment` (`CLOVER_…`) says which model."""

    name: str
    model: str
    max_context: int
    gateways: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def model_info(max_context: int) -> dict[str, Any]:
    """Of a model of ours. `max_context`: prompt and new tokens together."""
    return {
        "mode": "chat",
        "max_tokens": max_context,
        "max_input_tokens": max_context,
        "max_output_tokens": max_context,
        "input_cost_per_token": 0.0,
        "output_cost_per_token": 0.0,
        "cache_creation_input_token_cost": 0.0,
        "cache_read_input_token_cost": 0.0,
        "supports_function_calling": True,
        "supports_parallel_function_calling": True,
        "supports_tool_choice": True,
        "supports_response_schema": True,
        "supports_reasoning": True,
        "supports_system_messages": True,
    }


def proxy_config(deployment: Deployment, *, path: str = "config.yaml", port: int = 4000) -> str:
    """The whole file. `path` and `port` appear in the command that its first lines give."""
    sections: list[Iterable[str]] = [
        _head(deployment, path, port),
        _model_list(deployment),
        _provider(),
        _router(deployment),
        _general(),
    ]
    if deployment.environment:
        sections.append(["environment_variables:", *_mapping(deployment.environment, 2)])
    return "\n".join(line for section in sections for line in (*section, "")).rstrip() + "\n"


def _head(deployment: Deployment, path: str, port: int) -> Iterator[str]:
    where = (
        f"in front of {_count(len(deployment.gateways), 'gateway')} (over HTTP)"
        if deployment.gateways
        else "with clover-agent's engine inside its process"
    )
    yield f"# LiteLLM proxy {where}. Printed by `clover-agent litellm-config`; docs/litellm.md says more."
    yield "#"
    yield "#   pip install 'clover-agent[litellm-proxy]'"
    yield "#   export LITELLM_MASTER_KEY=sk-$(openssl rand -hex 32)      # what clients send as their API key"
    yield f"#   litellm --config {path} --host 127.0.0.1 --port {port}"
    if not deployment.gateways:
        yield "#"
        yield "# One worker (the default): every worker would load an engine of its own."


def _model_list(deployment: Deployment) -> Iterator[str]:
    yield "model_list:"
    for base in deployment.gateways or (None,):
        yield f"  - model_name: {json.dumps(deployment.name)}"
        yield "    litellm_params:"
        yield f"      model: {json.dumps(f'{PROVIDER}/{deployment.model}')}"
        if base is not None:
            yield f"      api_base: {json.dumps(base)}"
        yield f"      allowed_openai_params: [{', '.join(ALLOWED_PARAMS)}]  # refused for custom providers otherwise"
        yield "    model_info:"
        yield from _mapping(model_info(deployment.max_context), 6)


def _provider() -> Iterator[str]:
    yield "litellm_settings:"
    yield "  custom_provider_map:"
    yield f"    - {{provider: {PROVIDER}, custom_handler: {HANDLER}}}"


def _router(deployment: Deployment) -> Iterator[str]:
    yield "router_settings:"
    if len(deployment.gateways) < 2:
        yield "  # After a 429 of the only deployment a cooldown would refuse everybody for seconds."
        yield "  disable_cooldowns: true"
        yield "  num_retries: 0"
        return
    yield "  # The turns of a session go to one gateway, which holds their prefix. A session is told by a header:"
    yield "  # x-litellm-session-id, or what some agents send by themselves (docs/litellm.md)."
    yield "  optional_pre_call_checks: [session_affinity]"
    yield f"  deployment_affinity_ttl_seconds: {AFFINITY_S}"
    yield "  session_affinity_repin_on_failover: true"
    yield "  # What had not begun to stream is asked of another gateway at once. One that repeatedly is not reached, or"
    yield "  # is starting or ending (503), is left alone for a while; a full queue (429) is no reason to leave one."
    yield "  num_retries: 3"
    yield "  retry_after: 0"
    yield "  allowed_fails: 2"
    yield "  allowed_fails_policy: {RateLimitErrorAllowedFails: 1000}"
    yield "  cooldown_time: 5"


def _general() -> Iterator[str]:
    yield "general_settings:"
    yield "  master_key: os.environ/LITELLM_MASTER_KEY"


def _mapping(values: Mapping[str, Any], indent: int) -> Iterator[str]:
    """Keys are identifiers; JSON scalars are YAML."""
    for name, value in values.items():
        yield f"{' ' * indent}{name}: {json.dumps(value, ensure_ascii=False)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}s" if number > 1 else f"a {noun}"
