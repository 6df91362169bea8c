"""The OpenAPI document: what FastAPI found, completed by what the handlers read and write by hand."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from clover_agent.api.anthropic_schema import CountTokensRequest, MessagesRequest
from clover_agent.api.errors import speaks_anthropic
from clover_agent.api.guard import KEYED, OPEN_PATHS
from clover_agent.api.openai_completions_schema import CompletionRequest, DetokenizeRequest, TokenizeRequest
from clover_agent.api.openai_responses_schema import ResponsesRequest
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
ANTHROPIC_ERROR = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": ["string", "null"]},
    },
}
COMPLETION: dict[str, Any] = {
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
MESSAGE = {
    "type": "object",
    "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": {"type": "string"},
        "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
        "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        "stop_sequence": {"type": ["string", "null"]},
        "usage": {"type": "object"},
    },
}
TOKEN_COUNT = {
    "type": "object",
    "required": ["input_tokens"],
    "properties": {"input_tokens": {"type": "integer"}},
}
RESPONSE = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output", "error", "incomplete_details", "usage"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "incomplete"]},
        "model": {"type": "string"},
        "output": {"type": "array", "items": {"type": "object", "required": ["type", "id", "status"]}},
        "error": {"type": "null"},
        "incomplete_details": {"type": ["object", "null"]},
        "usage": {"type": "object"},
    },
}
TEXT_COMPLETION: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {**COMPLETION["properties"], "object": {"const": "text_completion"}},
}
TOKENS = {
    "type": "object",
    "required": ["count", "max_model_len", "tokens", "token_strs"],
    "properties": {
        "count": {"type": "integer"},
        "max_model_len": {"type": "integer"},
        "tokens": {"type": "array", "items": {"type": "integer"}},
        "token_strs": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
PROMPT_TEXT = {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}}
# Path -> the body that it takes and the name of what it answers.
FACES: dict[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatCompletionRequest, "ChatCompletion"),
    "/v1/completions": (CompletionRequest, "TextCompletion"),
    "/tokenize": (TokenizeRequest, "Tokens"),
    "/detokenize": (DetokenizeRequest, "PromptText"),
    "/v1/responses": (ResponsesRequest, "Response"),
    "/v1/messages": (MessagesRequest, "Message"),
    "/v1/messages/count_tokens": (CountTokensRequest, "TokenCount"),
}
ANSWERS = {
    "ChatCompletion": COMPLETION,
    "TextCompletion": TEXT_COMPLETION,
    "Response": RESPONSE,
    "Message": MESSAGE,
    "TokenCount": TOKEN_COUNT,
    "Tokens": TOKENS,
    "PromptText": PROMPT_TEXT,
}
STREAMED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
MODEL_ERRORS = ("400", "401", "403", "404", "503")
CHAT_ERRORS = ("400", "401", "403", "404", "413", "415", "429", "500", "503", "504")


def describe(document: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The document with request bodies, errors and keys. `names` are the models', as far as they are known."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model, _ in FACES.values():
        request = model.model_json_schema(ref_template=REF)
        parts = {**request.pop("$defs", {}), model.__name__: request}
        for part in parts.values():
            if names and "model" in part.get("properties", ()):
                part["properties"]["model"]["enum"] = list(names)
        schemas.update(parts)
    schemas.update({**ANSWERS, "Error": ERROR, "AnthropicError": ANTHROPIC_ERROR})
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
    if path in FACES:
        errors = CHAT_ERRORS
        model, answer = FACES[path]
        operation["requestBody"] = {"required": True, "content": _json(model.__name__)}
        responses["200"]["content"] = _json(answer) | ({"text/event-stream": {}} if path in STREAMED else {})
    elif path.startswith("/v1/models"):
        errors = MODEL_ERRORS
    elif path == "/metrics":
        responses["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    if path.startswith(KEYED) and path not in OPEN_PATHS:
        operation["security"] = [{"key": []}, {}]
    for status in errors:
        error = "AnthropicError" if speaks_anthropic(path) else "Error"
        responses[status] = {"description": "Error", "content": _json(error)}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=name)}}}
