"""POST /tokenize and /detokenize, in vLLM's form: what a prompt costs, and what ids say."""

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from clover_agent.api.body import read_body
from clover_agent.api.gateway import Gateway
from clover_agent.api.openai_completions_schema import DetokenizeRequest, TokenizeChat, TokenizePrompt, TokenizeRequest
from clover_agent.api.openai_request import to_conversation
from clover_agent.types import Conversation

router = APIRouter()


@router.post("/tokenize", name="tokenize", summary="The token ids of a prompt")
async def tokenize(request: Request) -> JSONResponse:
    """Of a raw prompt, as /v1/completions would send it to the model; of messages and tools, as chat completions
    would."""
    gateway: Gateway = request.app.state.gateway
    service = gateway.service
    body = (await read_body(request, TokenizeRequest, gateway.settings.server.max_body_bytes)).root
    gateway.check_model(body.model)
    ids = list(await service.tokens(await asyncio.to_thread(_conversation, body, gateway)))
    strings = [await service.decode([id_]) for id_ in ids] if body.return_token_strs else None
    return JSONResponse({"count": len(ids), "max_model_len": service.max_context, "tokens": ids, "token_strs": strings})


@router.post("/detokenize", name="detokenize", summary="The text of token ids")
async def detokenize(request: Request) -> JSONResponse:
    gateway: Gateway = request.app.state.gateway
    service = gateway.service
    body = await read_body(request, DetokenizeRequest, gateway.settings.server.max_body_bytes)
    gateway.check_model(body.model)
    return JSONResponse({"prompt": await service.decode(body.tokens)})


def _conversation(body: TokenizePrompt | TokenizeChat, gateway: Gateway) -> Conversation:
    if isinstance(body, TokenizePrompt):
        return Conversation(messages=(), raw=body.prompt)
    return to_conversation(body, gateway.schemas, max_context=gateway.service.max_context)
