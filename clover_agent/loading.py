"""Settings -> a ready `ChatService`: finds the checkpoint, reads its parts and puts them together.

Raises `LoadFailed` with one clear sentence for whatever cannot be used. Knows no HTTP.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import torch

from clover_agent.chat import ChatService, Path, ServedModel
from clover_agent.engine import Engine, EngineOptions, GenerateEngine, Strategy
from clover_agent.engine.memory import MemoryPlan, plan_memory
from clover_agent.errors import LoadFailed
from clover_agent.formats import ToolFormat, get_format, infer_format
from clover_agent.grammar import GrammarCompiler
from clover_agent.model.contract import Finding, Sample, examine_model
from clover_agent.model.native import NativeModel, load_native
from clover_agent.model.protocol import BlockModel
from clover_agent.model.remote.facts import Files
from clover_agent.model.remote.uncached import RemoteModel
from clover_agent.own_code import (
    OwnCode,
    open_checkpoint,
    probe_text,
    refuse_if_unusable,
    require_permission,
)
from clover_agent.replay import MAX_CONTEXT, replay_model
from clover_agent.settings import EngineSettings, ModelSettings, Settings
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import SamplingParams

logger = logging.getLogger("clover_agent.loading")

EMBEDDED = FilePath(__file__).parent / "sprout" / "weights"
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
    require_permission(wanted, config)
    tokenizer, template, format_ = load_text_parts(wanted)
    sampling = _sampling(wanted, _read_json(checkpoint / "generation_config.json", optional=True))
    hosted = _host(settings, checkpoint, config, _Text(tokenizer, template, format_), sampling)
    served = ServedModel(
        names=_names(wanted),
        tokenizer=tokenizer,
        template=template,
        format=format_,
        grammar=GrammarCompiler(tokenizer, hosted.engine.spec.vocab_size, hosted.engine.spec.end_token_ids, format_)
        if wanted.grammar and isinstance(hosted.engine, Engine)
        else None,
        sampling=sampling,
        max_context=min(hosted.max_context, wanted.max_model_len or hosted.max_context),
        template_kwargs=wanted.default_chat_template_kwargs,
        path=hosted.path,
    )
    return ChatService(served, hosted.engine)


def examine_checkpoint(settings: Settings) -> tuple[list[Finding], str]:
    """What the probes find about the model of the settings, and the path that would serve it, with the reason.

    Raises `LoadFailed` where it cannot be loaded at all, or is a script.
    """
    wanted = settings.model
    if wanted.model.startswith(REPLAY):
        raise LoadFailed("A script is no model: there is nothing to probe.")
    checkpoint = _checkpoint(wanted.model)
    config = _read_json(checkpoint / "config.json")
    require_permission(wanted, config)
    tokenizer, template, format_ = load_text_parts(wanted)
    if wanted.trust_remote_code:
        opened = _open(wanted, checkpoint, config, _Text(tokenizer, template, format_))
        return list(
            opened.examination.findings
        ), f"{opened.examination.verdict.path}: {opened.examination.verdict.reason}"
    dtype = _dtype(wanted, config)
    model = load_native(checkpoint, device=_device(wanted.device), dtype=dtype)
    sample = Sample.of(probe_text(template, tokenizer), model.spec.block_size)
    return examine_model(model, sample, dtype), "native: this package's own code"


@dataclass(frozen=True, slots=True)
class _Text:
    tokenizer: Tokenizer
    template: ChatTemplate
    format: ToolFormat


@dataclass(frozen=True, slots=True)
class _Hosted:
    engine: Engine | GenerateEngine
    max_context: int
    path: Path


def _host(
    settings: Settings, checkpoint: FilePath, config: Mapping[str, Any], text: _Text, sampling: SamplingParams
) -> _Hosted:
    wanted = settings.model
    model: BlockModel
    path: Path = "native"
    if wanted.trust_remote_code:
        opened = _open(wanted, checkpoint, config, text)
        refuse_if_unusable(opened, wanted.model)
        block_model, verdict = opened.examination.model, opened.examination.verdict
        if block_model is None:
            logger.warning("%s writes whole answers: no grammar holds its calls, they are only checked.", wanted.model)
            engine = GenerateEngine(opened.generator(sampling), max_waiting=settings.engine.max_queue)
            return _Hosted(engine, engine.spec.max_context, "generate")
        model, path = block_model, "cached" if verdict.path == "cached" else "uncached"
    elif wanted.model.startswith(REPLAY):
        model, path = replay_model(FilePath(wanted.model.removeprefix(REPLAY)), text.tokenizer, text.format), "scripted"
    else:
        model = load_native(checkpoint, device=_device(wanted.device), dtype=_dtype(wanted, config))
    memory = _memory(model, settings.engine)
    return _Hosted(Engine(model, _options(settings.engine, memory, _on_gpu(model))), memory.max_context, path)


def _open(wanted: ModelSettings, checkpoint: FilePath, config: Mapping[str, Any], text: _Text) -> OwnCode:
    files = Files(
        config,
        _read_json(checkpoint / "generation_config.json", optional=True),
        _read_json(checkpoint / "tokenizer_config.json", optional=True),
        text.tokenizer.control,
    )
    dtype = None if wanted.dtype == "auto" else _dtype(wanted, config)
    ids = probe_text(text.template, text.tokenizer)
    return open_checkpoint(wanted, checkpoint, files, ids, device=_device(wanted.device), dtype=dtype)


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
    return isinstance(model, NativeModel | RemoteModel) and model.device.type == "cuda"


def _memory(model: BlockModel, wanted: EngineSettings) -> MemoryPlan:
    """What is left beside the weights, less a tenth for what a forward pass needs. On a GPU, memory that others hold is
    not ours; on a CPU the cache takes a gigabyte at most unless the operator says otherwise."""
    if isinstance(model, NativeModel | RemoteModel) and model.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(model.device)
        left, most_cache = int(min(free, wanted.gpu_memory_utilization * total - (total - free)) * 0.9), None
    else:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        weights = model.weight_bytes if isinstance(model, NativeModel | RemoteModel) else 0
        left, most_cache = int(((wanted.max_memory or machine // 2) - weights) * 0.9), 1 << 30
    return plan_memory(left, model.spec, prefix_cache=wanted.prefix_cache_bytes, most_cache=most_cache)


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


def _checkpoint(model: str) -> FilePath:
    """The directory that holds the tokenizer and configuration: replays borrow sprout's."""
    path = EMBEDDED if model == "sprout" or model.startswith(REPLAY) else FilePath(model)
    if not (path / "config.json").is_file():
        raise LoadFailed(
            f"{model!r} is no model: there is no {path / 'config.json'}. Give sprout, replay:FILE, or the directory of "
            "a checkpoint."
        )
    return path


def _names(wanted: ModelSettings) -> tuple[str, ...]:
    """What clients may call the model. If the operator says nothing: sprout, replay, or the directory's name."""
    model = wanted.model
    name = "replay" if model.startswith(REPLAY) else FilePath(model).resolve().name if model != "sprout" else model
    return wanted.served_model_name or (name,)


def _template_and_format(
    wanted: ModelSettings, checkpoint: FilePath, clover: Mapping[str, Any], tokenizer: Tokenizer
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


def _own_template(checkpoint: FilePath, clover: Mapping[str, Any]) -> str | None:
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


def _read_text(path: FilePath) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFailed(f"Cannot read {path}: {error}") from error


def _read_json(path: FilePath, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    try:
        content = json.loads(_read_text(path))
    except ValueError as error:
        raise LoadFailed(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadFailed(f"{path} holds no JSON object.")
    return content
