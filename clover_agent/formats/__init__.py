"""Tool formats: one syntax of tool calls per file, with its markers, encoder and decoder."""

from collections.abc import Mapping

from clover_agent.errors import LoadFailed
from clover_agent.formats.base import ToolFormat
from clover_agent.formats.hermes_json import HermesJson
from clover_agent.formats.markers import THINK_BEGIN, THINK_END
from clover_agent.formats.qwen_xml import QwenXml

__all__ = ["FORMATS", "THINK_BEGIN", "THINK_END", "ToolFormat", "get_format", "infer_format"]

FORMATS: Mapping[str, ToolFormat] = {format_.name: format_ for format_ in (QwenXml(), HermesJson())}


def get_format(name: str) -> ToolFormat:
    """The format of that name or alias. Raises `LoadFailed` if there is none."""
    for format_ in FORMATS.values():
        if name in (format_.name, *format_.aliases):
            return format_
    known = ", ".join(f"{f.name} ({', '.join(f.aliases)})" for f in FORMATS.values())
    raise LoadFailed(f"There is no tool format {name!r}. Known: {known}.")


def infer_format(template: str) -> ToolFormat | None:
    """The format that a chat template's source teaches the model; None if it teaches none of ours."""
    if "<function=" in template:
        return FORMATS["qwen_xml"]
    return FORMATS["hermes_json"] if HermesJson.call_begin in template else None
