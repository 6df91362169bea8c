"""From what a request asks to a constraint: schema policy, Lark text, llguidance matcher, cache.

Plain synchronous code that may be called from any thread, and belongs off the event loop: the first use of a grammar
takes milliseconds, a hostile one up to some hundred. Knows no tool format beyond its `grammar` method.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Literal

from llguidance import LLMatcher, LLParserLimits

from clover_agent.errors import InvalidSchema, LoadFailed
from clover_agent.formats import THINK_END, ToolFormat
from clover_agent.grammar.close import CloseSearch
from clover_agent.grammar.constraint import Closer, Fixed, Frame, Free, GrammarConstraint, Held, Lexer, Phase
from clover_agent.grammar.dialect import Problem, Schema
from clover_agent.grammar.lower import required_names
from clover_agent.grammar.numbers import NumberGuard
from clover_agent.grammar.parts import json_schema
from clover_agent.grammar.source import Source
from clover_agent.grammar.spec import GrammarSpec, callable_tools
from clover_agent.grammar.vocabulary import Vocabulary, engine_tokenizer, kinds, text_mask
from clover_agent.types import Constraint, ResponseFormat, Tool, ToolChoice

Exactness = Literal["exact", "loosened"]

_AUTO = ToolChoice()
_TEXT = ResponseFormat()

AFTER_THOUGHT = "\n\n"
BETWEEN_CALLS = "\n"
ENDLESS = 10_000  # tokens that a schema forces in a row: llguidance itself gives up after 50,000
MAX_REQUIRED = 48  # names that the search for a way to the end is told of

# About 50 ms for the lexer of a grammar, 200 ms for its work between two masks, 50 MB for what it remembers. Masks are
# rarely computed here, so nothing is precomputed for them: that would more than double the time to compile.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=2_000_000,
    max_lexer_states=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A constraint for one request. `problems`: where its grammar is looser than the schemas."""

    constraint: Constraint
    exactness: Exactness
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Program:
    """A compiled grammar. `matcher` is copied, never advanced."""

    matcher: LLMatcher
    lexer: Lexer
    closer: Closer
    problems: tuple[Problem, ...]


class GrammarCompiler:
    """Compiles what requests ask, for one vocabulary and tool format.

    vocab_size      width of the model's head, which may be wider than the vocabulary
    end_token_ids   tokens that end a turn
    cache_size      grammars that are kept, least recently used out first

    Raises `LoadFailed` if the format's markers are no control tokens of the vocabulary.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        vocab_size: int,
        end_token_ids: Sequence[int],
        format_: ToolFormat,
        cache_size: int = 128,
    ) -> None:
        if not end_token_ids:
            raise LoadFailed("A model without an end token cannot be constrained.")
        self._format = format_
        self._vocabulary = vocabulary
        self._call_begin = self._marker(format_.call_begin)
        self._marker(format_.call_end)
        known = kinds(vocabulary)
        mask = text_mask(known, vocab_size)
        numbers = NumberGuard(vocabulary, known, len(mask))
        self._frame = Frame(vocabulary, known, mask, frozenset(end_token_ids), numbers)
        self._tokenizer = engine_tokenizer(vocabulary, end_token_ids)
        self._search = CloseSearch(vocabulary, format_)
        self._cache: OrderedDict[str, _Program] = OrderedDict()
        self._cache_size = cache_size
        self._lock = Lock()

    def constrain(
        self,
        *,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = _AUTO,
        parallel_tool_calls: bool = True,
        response_format: ResponseFormat = _TEXT,
        thinking: bool = False,
        thinking_budget: int | None = None,
    ) -> Compiled | None:
        """A constraint for one request; None where nothing is asked of the output.

        thinking          the prompt ends inside an open thought
        thinking_budget   most tokens of thought

        Raises `InvalidSchema` for a strict schema that the grammar cannot hold exactly, and for a schema that is too
        large or too expensive; `InvalidRequest` for a tool_choice that cannot be met.
        """
        callable_ = callable_tools(tuple(tools), tool_choice)
        required = tool_choice.mode == "required"
        output = None if response_format.kind == "text" or required else response_format
        spec = GrammarSpec(callable_, parallel_tool_calls, output)
        phases = self._thought(thinking_budget) if thinking else []
        if spec.output is not None or required:
            phases.append(Held())
        elif spec.tools:
            phases += [Free(ends=True), Held(self._call_begin)]
        elif tools or (thinking and thinking_budget is not None):
            phases.append(Free(ends=True))
        else:
            return None
        program = self._program(spec)
        with self._lock:
            matcher = program.matcher.deep_copy()
        constraint = GrammarConstraint(self._frame, tuple(phases), matcher, program.lexer, program.closer)
        return Compiled(constraint, "loosened" if program.problems else "exact", program.problems)

    def _thought(self, budget: int | None) -> list[Phase]:
        after = tuple(self._vocabulary.encode_text(AFTER_THOUGHT))
        end = Fixed((self._marker(THINK_END), *after))
        if budget is not None and budget <= 0:
            return [end]
        return [Free(ends=False, limit=budget, landing=tuple(self._vocabulary.encode_text("\n"))), end]

    def _marker(self, control: str) -> int:
        try:
            return self._vocabulary.control[control]
        except KeyError:
            raise LoadFailed(f"{control!r} is no control token of this vocabulary, but its format needs it.") from None

    def _program(self, spec: GrammarSpec) -> _Program:
        with self._lock:
            program = self._cache.get(spec.key)
            if program is not None and not program.lexer.broken:
                self._cache.move_to_end(spec.key)
                return program
        program = self._compile(spec)
        with self._lock:
            self._cache[spec.key] = program
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return program

    # ---- one grammar

    def _compile(self, spec: GrammarSpec) -> _Program:
        """All at once and exactly, if that can be done; else each schema by itself, loosened where it must be."""
        sources = [Source.of_tool(f"tool_{n}", tool) for n, tool in enumerate(spec.tools)]
        if spec.output is not None:
            sources.append(Source.of_output("output", spec.output))
        matcher = self._matcher(self._lark(spec, sources))
        if matcher.is_error():
            for source in sources:
                self._settle(source)
            matcher = self._matcher(self._lark(spec, sources))
        if matcher.is_error():
            raise InvalidSchema(
                f"These schemas are too much for one grammar: {_first_line(matcher.get_error())}", param="tools"
            )
        for source in sources:
            self._refuse_endless(source)
            source.refuse_if_strict()
        required = dict.fromkeys(name for source in sources for name in required_names(source.schema))
        closer = self._search.closer(islice(required, MAX_REQUIRED))
        problems = tuple(problem for source in sources for problem in source.problems)
        return _Program(matcher, Lexer(), closer, problems)

    def _refuse_endless(self, source: Source) -> None:
        """A schema that requires itself without end has no finite value: what it forces at once never ends."""
        if not isinstance(source.schema, dict) or "$defs" not in source.schema:
            return
        matcher = self._matcher(f"start: {source.name}\n{self._rules([source])}")
        if len(matcher.compute_ff_tokens()) > ENDLESS or matcher.is_error():
            raise InvalidSchema(f"No output can satisfy {source.label}: it requires itself without end ($ref).")

    def _settle(self, source: Source) -> None:
        """Loosen a schema until its rule compiles by itself."""
        source.loosen(self._refusal)
        if self._matcher(f"start: {source.name}\n{self._rules([source])}").is_error():
            source.give_up()

    def _refusal(self, schema: Schema) -> str | None:
        grammar = LLMatcher.grammar_from_json_schema(json_schema(schema))
        message = LLMatcher.validate_grammar(grammar, self._tokenizer, limits=LIMITS)
        return _first_line(message) if message and not message.startswith("WARNING") else None

    def _lark(self, spec: GrammarSpec, sources: Sequence[Source]) -> str:
        begin, end = (f"<[{self._vocabulary.control[m]}]>" for m in (self._format.call_begin, self._format.call_end))
        starts = ["output"] if spec.output is not None else []
        head = ""
        if spec.tools:
            bodies = " | ".join(source.name for source in sources if source.tool is not None)
            head = f"call: {begin} ({bodies}) {end}\n"
            starts.append(f"call ({json.dumps(BETWEEN_CALLS)} call)*" if spec.parallel else "call")
        return f"start: {' | '.join(starts) or '()'}\n{head}{self._rules(sources)}"

    def _rules(self, sources: Sequence[Source]) -> str:
        terminals: dict[str, str] = {}
        rules = [source.rule(self._format, terminals) for source in sources]
        return "".join([*rules, *(f"{name}: {body}\n" for body, name in terminals.items())])

    def _matcher(self, lark: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0, limits=LIMITS)
        if not matcher.is_error():
            matcher.compute_bitmask()  # what building the lexer has left of its budget would not last; this refills it
        return matcher


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "no reason was given"
