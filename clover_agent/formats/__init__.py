"""Tool formats: one syntax of tool calls per file, with its markers, encoder and decoder."""

from clover_agent.formats.markers import THINK_BEGIN, THINK_END

__all__ = ["THINK_BEGIN", "THINK_END"]
