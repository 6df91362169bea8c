"""The application: faces, door and life cycle put together. Knows no model."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from clover_agent import __version__
from clover_agent.api import (
    anthropic_messages,
    errors,
    openai_chat,
    openai_completions,
    openai_responses,
    system,
    tokens,
)
from clover_agent.api.gateway import Gateway, Service
from clover_agent.api.guard import Guard
from clover_agent.api.openapi import describe
from clover_agent.settings import Settings


def create_app(service: Service | Callable[[], Service], settings: Settings) -> FastAPI:
    """The gateway as an ASGI application.

    `service` is started when the application starts. A function is called on a thread meanwhile; until it returns,
    `/health` and everything else that needs the model answer 503.
    """
    gateway = Gateway(service, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.drain()

    app = FastAPI(
        title="clover-agent",
        version=__version__,
        description="Gateway with OpenAI's and Anthropic's interfaces around a block-diffusion language model.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    app.include_router(openai_chat.router)
    app.include_router(openai_responses.router)
    app.include_router(openai_completions.router)
    app.include_router(anthropic_messages.router)
    app.include_router(tokens.router)
    app.include_router(system.router)
    errors.install(app)
    app.add_middleware(Guard, settings=settings.server)
    if settings.server.allowed_origins:  # outermost, so that a page can read errors too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.server.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "request-id", "Retry-After"],
        )
    _document(app)
    return app


def _document(app: FastAPI) -> None:
    """Replace the generated document by one that also tells of what is read by hand: bodies, keys and errors."""
    generate = app.openapi
    gateway: Gateway = app.state.gateway

    def openapi() -> dict[str, Any]:
        names = gateway.service.model_ids if gateway.state == "ready" else ()
        return describe(deepcopy(generate()), names)

    app.openapi = openapi  # type: ignore[method-assign]
