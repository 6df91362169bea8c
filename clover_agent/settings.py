"""What an operator may set, read once: environment (`CLOVER_PORT`) < TOML file (`[server] port`) < flags (`--port`).

Frozen afterwards. Names are those of vLLM and SGLang where they exist. The same fields make the flags of
`clover-agent serve`: a description here is the help text there. Knows nothing of models, engines or HTTP.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from clover_agent.errors import LoadFailed


def _split(value: Any) -> Any:
    """`a,b` from the environment is a list of two."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _parse(value: Any) -> Any:
    """JSON text, from the environment or a flag."""
    return json.loads(value) if isinstance(value, str) else value


Json = Annotated[dict[str, Any], NoDecode, BeforeValidator(_parse)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]


class _Group(BaseSettings):
    """A section of the file. What is not given on construction comes from the environment."""

    model_config = SettingsConfigDict(
        env_prefix="CLOVER_", extra="forbid", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )


class ModelSettings(_Group):
    """What is served, and how its text is read and written."""

    model: str = Field(default="sprout", description="sprout, replay:FILE, or the path of a checkpoint.")
    served_model_name: Names = Field(default=(), description="A name that clients may use for the model. May repeat.")
    tool_call_parser: str = Field(
        default="auto", description="Tool format: auto, qwen_xml (qwen3_coder, qwen3_xml) or hermes_json (hermes)."
    )
    reasoning_parser: Literal["auto", "qwen3", "none"] = Field(default="auto", description="How thoughts are marked.")
    chat_template: Path | None = Field(
        default=None, description="A Jinja chat template to use instead of the checkpoint's."
    )
    default_chat_template_kwargs: Json = Field(
        default={}, description="Template variables for every request, as JSON; a request's own win."
    )
    grammar: bool = Field(
        default=True,
        description="Hold calls and response_format by a grammar; without it they are only checked at the end.",
    )
    block_size: int | None = Field(
        default=None, ge=1, le=256, description="Positions denoised together. Default: the checkpoint's."
    )
    threshold: float | None = Field(
        default=None, gt=0, le=1, description="Confidence at which a position is unmasked. Default: the checkpoint's."
    )
    max_model_len: int | None = Field(default=None, ge=16, description="Context length. Default: the checkpoint's.")
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1 …")
    dtype: Literal["auto", "float32", "float64", "bfloat16", "float16"] = Field(
        default="auto", description="Weights' type."
    )
    trust_remote_code: bool = Field(
        default=False, description="Run the Python code that the checkpoint brings, with all your rights."
    )
    revision: str | None = Field(
        default=None, description="Branch, tag or commit, for a model of the Hugging Face Hub."
    )
    device_map: str | None = Field(
        default=None, description="Spread a checkpoint with its own code over devices, as transformers does: auto …"
    )
    mask_token: str | None = Field(
        default=None, description="Id or text of the mask token, where a checkpoint's files do not tell it."
    )
    logits_shift: Literal["0", "1"] | None = Field(
        default=None,
        description="Whether a checkpoint's logits tell the same (0) or the next (1) token. Default: measured.",
    )


class EngineSettings(_Group):
    """How requests share the model."""

    max_num_seqs: int = Field(default=8, ge=1, description="Requests that share the forward passes.")
    max_queue: int = Field(default=64, ge=0, description="Requests that may wait for a place; one more gets a 429.")
    prefill_chunk: int = Field(default=2048, ge=1, description="Most prompt tokens in one forward pass.")
    prefill_beside: int | None = Field(
        default=None,
        ge=1,
        description="The same for a pass that other answers wait for. Default: 512 on a GPU, 64 on a CPU.",
    )
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="Share of the GPU's memory for weights, running requests and prefix cache."
    )
    max_memory: ByteSize | None = Field(
        default=None, gt=0, description="The same on a CPU, as in 8GiB. Default: half of the machine's memory."
    )
    prefix_cache_bytes: ByteSize | None = Field(
        default=None, ge=0, description="Part of it for the states of earlier prompts, as in 2GiB; 0 keeps none."
    )
    strategy: Literal["prefix", "any_order"] = Field(
        default="prefix", description="Where a grammar-owned block may be unmasked: at its frontier, or anywhere."
    )


class ServerSettings(_Group):
    """How the gateway meets the network."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    api_key: Secrets = Field(default=(), description="A key that clients must send. May repeat.")
    allowed_hosts: Names = Field(
        default=(), description="Host names that requests may address besides localhost and IP addresses; * allows all."
    )
    allowed_origins: Names = Field(
        default=(), description="Origins of web pages that may use the gateway (CORS); * allows all."
    )
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024, description="Largest request body.")
    keep_alive_s: float = Field(default=15, gt=0, le=60, description="Seconds between comments on a silent stream.")
    silence_event_s: float = Field(
        default=120,
        gt=0,
        le=120,
        description="Seconds of silence before an empty delta (some clients ignore comments).",
    )
    send_timeout_s: float = Field(
        default=300, gt=0, description="Seconds that a client may leave a stream unread before it is given up."
    )
    request_timeout: float | None = Field(
        default=None, gt=0, description="Seconds that one answer may take. Default: no limit."
    )
    drain_s: float = Field(default=30, ge=0, description="Seconds that running answers get to end on shutdown.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="How it is logged.")


Group = TypeVar("Group", bound=_Group)
GROUPS: Mapping[str, type[_Group]] = {"model": ModelSettings, "engine": EngineSettings, "server": ServerSettings}


class Settings(BaseModel):
    """All settings. Build it with `load`, or from groups in tests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelSettings = Field(default_factory=ModelSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)

    @classmethod
    def load(cls, config: Path | None = None, flags: Mapping[str, Any] | None = None) -> "Settings":
        """Environment, then the file, then `flags` (flat, by field name; None = not given).

        Raises `LoadFailed` naming the setting.
        """
        sections = _read(config)
        for name, value in (flags or {}).items():
            if value is not None:
                sections[group_of(name)][name] = value
        return cls(
            model=_build("model", ModelSettings, sections),
            engine=_build("engine", EngineSettings, sections),
            server=_build("server", ServerSettings, sections),
        )


def group_of(field: str) -> str:
    """The group that a field belongs to; names are unique over all groups. Raises `LoadFailed`."""
    for name, group in GROUPS.items():
        if field in group.model_fields:
            return name
    raise LoadFailed(f"There is no setting {field!r}.")


def _build(name: str, group: type[Group], sections: Mapping[str, Mapping[str, Any]]) -> Group:
    try:
        return group(**sections[name])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise LoadFailed(f"Setting {name}.{field}: {first['msg']}.") from error


def _read(config: Path | None) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
    if config is None:
        return sections
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LoadFailed(f"Cannot read the settings file {config}: {error}") from error
    for name, values in content.items():
        if name not in sections or not isinstance(values, dict):
            raise LoadFailed(f"{config}: {name!r} is not a section; sections are {', '.join(sections)}.")
        sections[name] = values
    return sections
