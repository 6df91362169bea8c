"""Two servers over the same random weights: this gateway, and the recipe that people run today.

    python -m benchmarks.servers ours|recipe --port 8123 [--config benchmarks/configs/bench-50m.json]

The recipe is a FastAPI function around a generate loop: one request at a time, keys and values cached within the
request, every step on the whole block with logits for all its rows, a commit of its own per block, no stream, nothing
kept for the next request. It uses the same model code, tokenizer, template and rule of unmasking (one token a step), so
what differs is the serving.
"""

import argparse
import threading
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI

from benchmarks.overhead import CONFIG, random_model
from clover_agent.api import create_app
from clover_agent.chat import ChatService, ServedModel
from clover_agent.cli.allocator import keep_freed_memory
from clover_agent.engine import Engine, EngineOptions
from clover_agent.formats import FORMATS
from clover_agent.loading import EMBEDDED
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import DenseLogits, Work
from clover_agent.settings import ServerSettings, Settings
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Conversation, Message, SamplingParams

ONE_BY_ONE = SamplingParams(threshold=1.0)


class WideTokenizer(Tokenizer):
    """Sprout's vocabulary is narrower than the model's head: random weights also write ids that stand for nothing."""

    def token_bytes(self, id_: int) -> bytes:
        return super().token_bytes(id_) if id_ < self.vocab_size else b" x"


def text_parts() -> tuple[Tokenizer, ChatTemplate]:
    tokenizer = WideTokenizer.from_file(EMBEDDED / "tokenizer.json")
    return tokenizer, ChatTemplate(template_source("hermes_json"), tokenizer.control)


def ours(model: NativeModel) -> FastAPI:
    tokenizer, template = text_parts()
    served = ServedModel(
        names=("bench",),
        tokenizer=tokenizer,
        template=template,
        format=FORMATS["hermes_json"],
        grammar=None,
        sampling=ONE_BY_ONE,
        max_context=model.spec.max_context,
    )
    options = EngineOptions(max_num_seqs=16, prefill_beside=64, prefix_cache=1 << 30)
    settings = Settings(server=ServerSettings())
    return create_app(lambda: ChatService(served, Engine(model, options)), settings)


class Recipe:
    """`generate` for block diffusion, as model cards show it."""

    def __init__(self, model: NativeModel) -> None:
        self.model = model
        self.lock = threading.Lock()

    @torch.inference_mode()
    def generate(self, prompt: list[int], new_tokens: int) -> list[int]:
        model, size, mask = self.model, self.model.spec.block_size, self.model.spec.mask_token_id
        state, output = model.new_state(), list[int]()
        model.forward([Work(state, prompt)])
        while len(output) < new_tokens:
            block = [mask] * size
            for position in range(min(size, new_tokens - len(output))):
                logits = model.logits(model.forward([Work(state, (), block)]), range(size))
                assert isinstance(logits, DenseLogits)
                block[position] = int(logits.values.argmax(-1)[position])
            model.forward([Work(state, block)])
            output += block
        return output[:new_tokens]


def recipe(model: NativeModel) -> FastAPI:
    app, inner = FastAPI(), Recipe(model)
    tokenizer, template = text_parts()

    @app.post("/v1/chat/completions")
    def complete(body: dict[str, Any]) -> dict[str, Any]:
        messages = tuple(Message(m["role"], m["content"]) for m in body["messages"])
        prompt = template.render(Conversation(messages, enable_thinking=False))
        ids = tokenizer.encode(prompt.segments)
        with inner.lock:
            output = inner.generate(ids, body["max_tokens"])
        choice = {"index": 0, "message": {"role": "assistant", "content": tokenizer.decode(output)}}
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(output)}
        return {"object": "chat.completion", "choices": [choice], "usage": usage}

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("ours", "recipe"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.kind == "ours":
        keep_freed_memory()  # as `clover-agent serve` does
    model = random_model(options.config, options.device)
    app = ours(model) if options.kind == "ours" else recipe(model)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
