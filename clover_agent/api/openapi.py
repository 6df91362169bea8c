"""The OpenAPI document: what FastAPI found, completed by what the handlers read and write by hand."""

from collections.abc import Sequence
from typing import Any

from clover_agent.api.openai_schema import ChatCompletionRequest

REF = "#/components/schemas/{model}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
COMPLETION = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": "object"},
    },
}
MODEL_ERRORS = ("400", "401", "403", "404", "503")
CHAT_ERRORS = ("400", "401", "403", "404", "413", "415", "429", "500", "503", "504")


def describe(document: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The document with request bodies, errors and keys. `names` are the models', as far as they are known."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    request = ChatCompletionRequest.model_json_schema(ref_template=REF)
    schemas.update(request.pop("$defs", {}))
    if names:
        request["properties"]["model"]["enum"] = list(names)
    schemas.update({"ChatCompletionRequest": request, "ChatCompletion": COMPLETION, "Error": ERROR})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _operation(path, operation)
    return document


def _operation(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    errors: tuple[str, ...] = ("403", "503")
    if path == "/v1/chat/completions":
        errors = CHAT_ERRORS
        operation["requestBody"] = {"required": True, "content": _json("ChatCompletionRequest")}
        responses["200"]["content"] = _json("ChatCompletion") | {"text/event-stream": {}}
    elif path.startswith("/v1/models"):
        errors = MODEL_ERRORS
    elif path == "/metrics":
        responses["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    if path.startswith("/v1/") and path != "/v1/health":
        operation["security"] = [{"key": []}, {}]
    for status in errors:
        responses[status] = {"description": "Error", "content": _json("Error")}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=name)}}}
