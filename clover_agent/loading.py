"""Settings -> a ready `ChatService`: finds the checkpoint, reads its parts and puts them together.

Raises `LoadFailed` with one clear sentence for whatever cannot be used. Knows no HTTP.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clover_agent.chat import ChatService, ServedModel
from clover_agent.engine import Engine, EngineOptions, Strategy
from clover_agent.engine.memory import MemoryPlan, plan_memory
from clover_agent.errors import LoadFailed
from clover_agent.formats import ToolFormat, get_format, infer_format
from clover_agent.grammar import GrammarCompiler
from clover_agent.model.native import NativeModel, load_native
from clover_agent.model.protocol import BlockModel
from clover_agent.replay import MAX_CONTEXT, replay_model
from clover_agent.settings import EngineSettings, ModelSettings, Settings
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import SamplingParams

EMBEDDED = Path(__file__).parent / "sprout" / "weights"
REPLAY = "replay:"
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What generation_config.json may say; the names are those of SamplingParams.
GENERATION_FIELDS = (
    *("temperature", "top_p", "top_k", "min_p", "threshold", "block_size", "fallback"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "length_penalty", "length_penalty_start"),
)


def load_service(settings: Settings) -> ChatService:
    """Load the model that the settings name. Takes seconds to minutes; raises `LoadFailed`."""
    wanted = settings.model
    checkpoint = _checkpoint(wanted.model)
    config = _read_json(checkpoint / "config.json")
    _refuse_own_code(wanted, config)
    tokenizer, template, format_ = load_text_parts(wanted)
    if wanted.model.startswith(REPLAY):
        model: BlockModel = replay_model(Path(wanted.model.removeprefix(REPLAY)), tokenizer, format_)
    else:
        model = load_native(checkpoint, device=_device(wanted.device), dtype=_dtype(wanted, config))
    memory = _memory(model, settings.engine)
    engine = Engine(model, _options(settings.engine, memory, _on_gpu(model)))
    served = ServedModel(
        names=_names(wanted),
        tokenizer=tokenizer,
        template=template,
        format=format_,
        grammar=GrammarCompiler(tokenizer, model.spec.vocab_size, model.spec.end_token_ids, format_)
        if wanted.grammar
        else None,
        sampling=_sampling(wanted, _read_json(checkpoint / "generation_config.json", optional=True)),
        max_context=min(memory.max_context, wanted.max_model_len or memory.max_context),
        template_kwargs=wanted.default_chat_template_kwargs,
    )
    return ChatService(served, engine)


def _options(wanted: EngineSettings, memory: MemoryPlan, on_gpu: bool) -> EngineOptions:
    return EngineOptions(
        max_num_seqs=wanted.max_num_seqs,
        max_waiting=wanted.max_queue,
        prefill_tokens=wanted.prefill_chunk,
        prefill_beside=wanted.prefill_beside or (512 if on_gpu else 64),
        state_memory=memory.states,
        prefix_cache=memory.prefix_cache,
        strategy=Strategy(wanted.strategy),
    )


def _on_gpu(model: BlockModel) -> bool:
    return isinstance(model, NativeModel) and model.device.type == "cuda"


def _memory(model: BlockModel, wanted: EngineSettings) -> MemoryPlan:
    """What is left beside the weights, less a tenth for what a forward pass needs. On a GPU, memory that others hold is
    not ours; on a CPU the cache takes a gigabyte at most unless the operator says otherwise."""
    if isinstance(model, NativeModel) and model.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(model.device)
        left, most_cache = int(min(free, wanted.gpu_memory_utilization * total - (total - free)) * 0.9), None
    else:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        weights = model.weight_bytes if isinstance(model, NativeModel) else 0
        left, most_cache = int(((wanted.max_memory or machine // 2) - weights) * 0.9), 1 << 30
    return plan_memory(left, model.spec, prefix_cache=wanted.prefix_cache_bytes, most_cache=most_cache)


def _refuse_own_code(wanted: ModelSettings, config: Mapping[str, Any]) -> None:
    """A checkpoint that brings code computes something else than the native model, even where its tensors fit."""
    if wanted.trust_remote_code:
        raise LoadFailed("--trust-remote-code: this version cannot run a checkpoint's own code. Leave the flag out.")
    if config.get("auto_map"):
        raise LoadFailed(
            f"{wanted.model} brings its own code (auto_map in config.json), which this version cannot run. Served as a "
            "native model it would give other answers than its makers intended."
        )


def announced(settings: Settings) -> tuple[tuple[str, ...], int]:
    """The names that the model of the settings is served under, and its context, without loading the weights.

    Raises `LoadFailed` if there is no such model.
    """
    wanted = settings.model
    config = _read_json(_checkpoint(wanted.model) / "config.json")
    context = MAX_CONTEXT if wanted.model.startswith(REPLAY) else int(config.get("max_position_embeddings", 0))
    return _names(wanted), min(context, wanted.max_model_len or context)


def load_text_parts(wanted: ModelSettings) -> tuple[Tokenizer, ChatTemplate, ToolFormat]:
    """What turns conversations into ids and text into calls, without the weights. Raises `LoadFailed`."""
    checkpoint = _checkpoint(wanted.model)
    tokenizer = Tokenizer.from_file(checkpoint / "tokenizer.json")
    clover = _read_json(checkpoint / "config.json").get("clover", {})
    template, format_ = _template_and_format(wanted, checkpoint, clover, tokenizer)
    return tokenizer, template, format_


def _checkpoint(model: str) -> Path:
    """The directory that holds the tokenizer and configuration: replays borrow sprout's."""
    path = EMBEDDED if model == "sprout" or model.startswith(REPLAY) else Path(model)
    if not (path / "config.json").is_file():
        raise LoadFailed(
            f"{model!r} is no model: there is no {path / 'config.json'}. Give sprout, replay:FILE, or the directory of "
            "a checkpoint."
        )
    return path


def _names(wanted: ModelSettings) -> tuple[str, ...]:
    """What clients may call the model. If the operator says nothing: sprout, replay, or the directory's name."""
    model = wanted.model
    name = "replay" if model.startswith(REPLAY) else Path(model).resolve().name if model != "sprout" else model
    return wanted.served_model_name or (name,)


def _template_and_format(
    wanted: ModelSettings, checkpoint: Path, clover: Mapping[str, Any], tokenizer: Tokenizer
) -> tuple[ChatTemplate, ToolFormat]:
    """The chat template: the operator's, the checkpoint's own, the one its config names, or the format's. The format:
    the operator's, the one the config names, or the one that the template teaches."""
    source = None
    replays = wanted.model.startswith(REPLAY)
    name = "qwen_xml" if replays else clover.get("tool_format")
    if wanted.tool_call_parser != "auto":
        name = wanted.tool_call_parser
    if wanted.chat_template is not None:
        source = _read_text(wanted.chat_template)
    elif not replays:
        source = _own_template(checkpoint, clover)
    format_ = get_format(name) if name else infer_format(source or "")
    if format_ is None:
        raise LoadFailed("The chat template teaches no known tool format. Say which with --tool-call-parser.")
    return ChatTemplate(source or template_source(format_.template), tokenizer.control), format_


def _own_template(checkpoint: Path, clover: Mapping[str, Any]) -> str | None:
    own = checkpoint / "chat_template.jinja"
    if own.is_file():
        return _read_text(own)
    in_config = _read_json(checkpoint / "tokenizer_config.json", optional=True).get("chat_template")
    if isinstance(in_config, str):
        return in_config
    named = clover.get("chat_template")
    return template_source(named) if named else None


def _sampling(wanted: ModelSettings, generation: Mapping[str, Any]) -> SamplingParams:
    """The checkpoint's decoding defaults, then the operator's."""
    given = {name: generation[name] for name in GENERATION_FIELDS if name in generation}
    if generation.get("do_sample") is False:
        given["temperature"] = 0.0
    given |= {
        name: value
        for name, value in (("block_size", wanted.block_size), ("threshold", wanted.threshold))
        if value is not None
    }
    return replace(SamplingParams(), **given)


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(wanted: ModelSettings, config: Mapping[str, Any]) -> torch.dtype:
    name = config.get("dtype", "float32") if wanted.dtype == "auto" else wanted.dtype
    if name not in DTYPES:
        raise LoadFailed(f"config.json has the dtype {name!r}; known are {', '.join(DTYPES)}.")
    return DTYPES[name]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFailed(f"Cannot read {path}: {error}") from error


def _read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    try:
        content = json.loads(_read_text(path))
    except ValueError as error:
        raise LoadFailed(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadFailed(f"{path} holds no JSON object.")
    return content
