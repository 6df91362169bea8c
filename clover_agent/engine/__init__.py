"""The engine: denoises blocks of many requests on one thread, under a grammar where a request has one."""

from clover_agent.engine.engine import Engine, EngineStats
from clover_agent.engine.generate import GenerateEngine
from clover_agent.engine.options import EngineOptions, Strategy
from clover_agent.engine.request import GenerationRequest

__all__ = ["Engine", "EngineOptions", "EngineStats", "GenerateEngine", "GenerationRequest", "Strategy"]
