"""What real agents send: the sizes of their first request, and what their tools cost the grammar.

    make test-agents && python -m benchmarks.agents [FOLDER] [--repeat 5]

FOLDER holds one chat completion request a file (`pi.json`); the tests of the agents leave theirs in .agents/requests.
Times are medians, each with nothing compiled before, on Qwen3.6's vocabulary (Clover's). The grammar is compiled once
for each tool list and then kept.
"""

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clover_agent.cli.request_file import read_request
from clover_agent.formats import FORMATS, ToolFormat
from clover_agent.grammar import Compiled, GrammarCompiler
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.types import Conversation, Segment

from .vocabularies import QwenVocabulary, Setting, setting

T = TypeVar("T")

PLAIN = {"type", "properties", "required", "description", "items"}
COLUMNS = ("client", "tools", "tools, characters", "body, bytes", "prompt, tokens")
NOT_SCHEMAS = {"properties", "$defs", "definitions"}  # their members are named by the author


def keywords(schema: Any, named: bool = False) -> Iterator[str]:
    """Every keyword of a schema; `named`: the members of this object are no keywords."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if not named:
                yield key
            if named or key not in ("enum", "const", "default", "examples"):
                yield from keywords(value, not named and key in NOT_SCHEMAS)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for value in schema:
            yield from keywords(value)


def count_tokens(segments: Sequence[Segment], vocabulary: QwenVocabulary) -> int:
    """Control strings are one token each in trusted text only, as the gateway encodes a prompt."""
    control = re.compile("|".join(re.escape(text) for text in sorted(vocabulary.control, key=len, reverse=True)))
    count = 0
    for segment in segments:
        parts = control.split(segment.text) if segment.trusted else [segment.text]
        count += len(parts) - 1 + sum(len(vocabulary.encode_text(part)) for part in parts)
    return count


def median_ms(work: Callable[[], T], repeat: int) -> tuple[float, T]:
    """The median time of `work`, and its last result."""
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        result = work()
        times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times), result


def compile_(conversation: Conversation, at: Setting, format_: ToolFormat, repeat: int) -> tuple[float, Compiled]:
    compiler = GrammarCompiler(at.vocabulary, at.vocab_size, at.end_token_ids, format_, cache_size=0)
    took, compiled = median_ms(
        lambda: compiler.constrain(tools=conversation.tools, tool_choice=conversation.tool_choice), repeat
    )
    if compiled is None:
        raise SystemExit("A request of these has no tools: there is no grammar to measure.")
    return took, compiled


def measure(path: Path, qwen: Setting, repeat: int) -> list[str]:
    body, conversation = json.loads(path.read_bytes()), read_request(path)
    tools = body["tools"]
    row = [path.stem, str(len(tools)), f"{len(json.dumps(tools)):,}", f"{path.stat().st_size:,}"]
    vocabulary = qwen.vocabulary
    if not isinstance(vocabulary, QwenVocabulary):
        raise TypeError("tokens are counted on Qwen's vocabulary")
    template = ChatTemplate(template_source("qwen_xml"), vocabulary.control)
    row.append(f"{count_tokens(template.render(conversation).segments, vocabulary):,}")
    for format_ in FORMATS.values():
        took, compiled = compile_(conversation, qwen, format_, repeat)
        problems = "".join(f"; {problem}" for problem in compiled.problems)
        row.append(f"{compiled.exactness}, {took:.0f} ms{problems}")
    used = {word for tool in tools for word in keywords(tool["function"].get("parameters") or {})}
    row.append(" ".join(sorted(used - PLAIN)))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(".agents/requests"))
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    qwen = setting("qwen")
    head = [*COLUMNS, *(f"grammar, {name}" for name in FORMATS), "schema keywords beyond the plain ones"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for path in sorted(options.folder.glob("*.json")):
        print(f"| {' | '.join(measure(path, qwen, options.repeat))} |")


if __name__ == "__main__":
    main()
