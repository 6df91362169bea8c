"""The first checks: somebody answers, the model is listed, its context length is told."""

from collections.abc import Mapping
from typing import Any

from clover_agent.api import CONTEXT_NAMES
from clover_agent.doctor.report import Trouble, require
from clover_agent.doctor.wire import STATUS_ADVICE, Endpoint

HERMES_LEAST = 64_000  # NousResearch/hermes-agent#53347: it does not start below


def reachable(endpoint: Endpoint, model: str) -> str:
    """Any answer that is no refusal of the key."""
    reply = endpoint.ask("/models")
    require(
        reply.status not in (401, 403, 503), f"/models answers {reply.status}.", STATUS_ADVICE.get(reply.status, "")
    )
    return f"{endpoint.base}/models answers {reply.status}"


def listed(endpoint: Endpoint, model: str) -> str:
    """The model is in the list."""
    entry(endpoint, model)
    return model


def context(endpoint: Endpoint, model: str) -> str:
    """The context length is told under a name that some client reads."""
    found = entry(endpoint, model)
    lengths = {name: found[name] for name in CONTEXT_NAMES if type(found.get(name)) is int}
    require(
        lengths,
        f"/models tells no context length for {model}.",
        "Set it in the client (Hermes Agent: model.context_length; it guesses 256K otherwise).",
    )
    length = max(lengths.values())
    short = f"; Hermes Agent does not start below {HERMES_LEAST}" if length < HERMES_LEAST else ""
    return f"{length} tokens ({', '.join(lengths)[:40]} …){short}" if len(lengths) > 2 else f"{length} tokens{short}"


def first(endpoint: Endpoint) -> str:
    """The first model of the list."""
    return str(_entries(endpoint)[0]["id"])


def entry(endpoint: Endpoint, model: str) -> Mapping[str, Any]:
    """What the list says of a model."""
    entries = _entries(endpoint)
    for found in entries:
        if found["id"] == model:
            return found
    names = ", ".join(str(found["id"]) for found in entries[:8])
    raise Trouble(f"{model!r} is not in the list: {names}", "Use a listed name: --model.")


def _entries(endpoint: Endpoint) -> list[Mapping[str, Any]]:
    data = endpoint.json("/models").get("data")
    good = isinstance(data, list) and data and all(isinstance(one, dict) and "id" in one for one in data)
    if not good or not isinstance(data, list):
        raise Trouble("/models lists no model.", 'The shape is {"object": "list", "data": [{"id": …}]}.')
    return data
