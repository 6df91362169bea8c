"""Grammar-constrained output: from what a request asks to which token may stand where, and the check of the result."""

from clover_agent.grammar.compile import Compiled, GrammarCompiler
from clover_agent.grammar.constraint import GrammarConstraint
from clover_agent.grammar.validate import check_call, check_output

__all__ = ["Compiled", "GrammarCompiler", "GrammarConstraint", "check_call", "check_output"]
