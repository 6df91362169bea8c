"""Parsing: detokenised output -> events, piece by piece, and events -> one message."""

from clover_agent.parsing.collect import Completion, collect
from clover_agent.parsing.parser import Parser
from clover_agent.parsing.stop import StopFilter
from clover_agent.parsing.verbatim import Verbatim

__all__ = ["Completion", "Parser", "StopFilter", "Verbatim", "collect"]
