"""What is asked about the server itself: models, health, version, metrics."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from clover_agent import __version__
from clover_agent.api.errors import error_response
from clover_agent.api.gateway import NOT_READY, Gateway
from clover_agent.errors import Unavailable

router = APIRouter()

# Every name by which some client looks for the context length of a model.
CONTEXT_NAMES = (
    *("context_length", "context_window", "context_size", "max_context_length", "max_model_len", "max_input_tokens"),
    *("max_position_embeddings", "max_sequence_length", "max_seq_len", "n_ctx", "n_ctx_train", "ctx_size"),
)


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


@router.get("/v1/models", name="models", summary="List the models")
async def list_models(request: Request) -> JSONResponse:
    """OpenAI's list and Anthropic's page in one: they have no name in common that means two things."""
    gateway = _gateway(request)
    names = gateway.service.model_ids
    page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return JSONResponse({"object": "list", "data": [_entry(gateway, name) for name in names], **page})


@router.get("/v1/models/{model:path}", name="model", summary="Tell about one model")
async def get_model(request: Request, model: str) -> JSONResponse:
    gateway = _gateway(request)
    gateway.check_model(model)
    return JSONResponse(_entry(gateway, model))


@router.get("/health", name="health", summary="Whether requests are answered")
@router.get("/v1/health", name="v1_health", summary="Whether requests are answered")
async def health(request: Request) -> JSONResponse:
    """200 once the model is loaded; 503 while it loads, drains, or after the engine has stopped. Needs no key."""
    state = _gateway(request).state
    return (
        JSONResponse({"status": "ok"})
        if state == "ready"
        else error_response(Unavailable(NOT_READY[state]), request.url.path)
    )


@router.get("/version", name="version", summary="The version of the server")
async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})


@router.get("/metrics", name="metrics", summary="Metrics for Prometheus")
async def metrics(request: Request) -> Response:
    collected = _gateway(request).metrics
    return Response(collected.render(), media_type=collected.content_type)


def _entry(gateway: Gateway, name: str) -> dict[str, Any]:
    service = gateway.service
    canonical = service.model_ids[0]
    return {
        "id": name,
        "object": "model",
        "created": gateway.created,
        "owned_by": "clover-agent",
        "root": canonical,
        "parent": None if name == canonical else canonical,
        **dict.fromkeys(CONTEXT_NAMES, service.max_context),
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(gateway.created, UTC).isoformat(),
        "lifecycle": "active",
        "clover": dict(service.capabilities),
    }
