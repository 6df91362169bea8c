"""What the grammar holds: schemas, their instances, and output generated through the engine by a model of noise.

    python -m benchmarks.constrained --schemas FILE.jsonl[.gz] [--vocab sprout|qwen]
        [--format response_format|hermes_json|qwen_xml] [--script perfect|corrupt|gibberish|adversarial]
        [--limit N] [--seed S] [--max-tokens 512] [--dense] --json OUT

Each line of FILE is `{"name", "schema", "tests": [{"valid", "data"}]}`; `--limit` draws N of them by `--seed`. A schema
is compiled as a response format, or as the parameters of the only tool, with one call required. Then

1. each instance, keys in schema order, is offered to an exact grammar: valid ones refused, invalid ones accepted.
   For a tool, valid instances with members that the schema does not declare are counted apart (`undeclared`): calls
   are held to the declared parameters. Instances that the syntax cannot tell from another value are left out.
2. the engine generates one output (`babble` is the model), and an independent judge says whether it is valid.

Keys of OUT, apart from the settings:
    schemas, compiled (exactly), loosened, refused          and `reasons` for the latter two
    valid, invalid, valid_refused, invalid_accepted         instances
    finished_valid, finished_invalid                        outputs passed on as finished
    loosened_rejected                                       outputs of loosened grammars that the final check held back
    checked_rejected                                        the same for exact grammars (a key twice, 1e999)
    cut                                                     ended by the budget without a whole output, although the
                                                            shortest instance fits into it; `unfit`: it does not fit
    unjudged                                                the judge cannot use the schema
    forwards_per_block, forced_share, compile_ms_p50, compile_ms_p99        (processor time, here and below)
    constraint_ms_p50, constraint_ms_p99                    per sequence and denoising step
    failures, cut_ends                                      [name, what happened], [name, the last words]
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.babble import Babble, BabbleHidden
from benchmarks.instances import Case, Judge, in_schema_order, read_cases
from benchmarks.timed import Account, TimedConstraint
from benchmarks.vocabularies import Setting, setting
from clover_agent.engine import Engine, EngineOptions, GenerationRequest, Strategy
from clover_agent.errors import CloverError, InvalidOutput, InvalidToolCall
from clover_agent.formats import FORMATS, ToolFormat
from clover_agent.grammar import Compiled, GrammarCompiler, check_call, check_output
from clover_agent.grammar.spec import WRAPPED, arguments_schema
from clover_agent.model.protocol import Work
from clover_agent.types import ResponseFormat, SamplingParams, Step, Tool, ToolChoice

JSON_CLOSERS = ('"', '"', "}", "]", '"}', '"]')
XML_CLOSERS = ("\n</parameter>\n", "\n</parameter>\n", '"', '"}', "}", "]")
TOOL = "answer"


@dataclass
class Outcome:
    """Counters and samples of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    cut: list[tuple[str, str]] = field(default_factory=list)
    compile_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    steps: int = 0
    blocks: int = 0
    tokens: int = 0
    forced: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A schema that compiled, with what its output is to be."""

    case: Case
    compiled: Compiled
    shortest: int | None
    judge: Judge | None


class Surface:
    """How a schema is asked for, and how its output is written and read: as visible text or as a call."""

    def __init__(self, name: str, place: Setting) -> None:
        self.format: ToolFormat | None = FORMATS.get(name)
        self._place = place
        self.compiler = GrammarCompiler(
            place.vocabulary, place.vocab_size, place.end_token_ids, self.format or FORMATS["hermes_json"]
        )

    @property
    def closers(self) -> Sequence[str]:
        return XML_CLOSERS if self.format is FORMATS["qwen_xml"] else JSON_CLOSERS

    def compile(self, schema: Any) -> Compiled:
        if self.format is None:
            asked = self.compiler.constrain(response_format=self._response(schema))
        else:
            asked = self.compiler.constrain(
                tools=[self._tool(schema)], tool_choice=ToolChoice("required"), parallel_tool_calls=False
            )
        assert asked is not None
        return asked

    def write(self, schema: Any, data: Any) -> str | None:
        """The output that gives an instance; None if the syntax has none that reads as this instance."""
        if self.format is None:
            return json.dumps(data, ensure_ascii=False)
        if not isinstance(data, dict):
            return None
        try:
            text = self.format.encode(TOOL, data)
            return text if json.loads(self.read(schema, text)) == data else None
        except CloverError:
            return None

    def read(self, schema: Any, text: str) -> str:
        """The JSON text of an output. Raises `InvalidToolCall`."""
        if self.format is None:
            return text
        body = text.removeprefix(self.format.call_begin).split(self.format.call_end)[0]
        return self.format.decode(body, [self._tool(schema)])[1]

    def inner(self, schema: Any, value: str) -> str:
        """What the schema speaks of: the arguments, or the one that a schema of no object was wrapped in."""
        arguments, _ = arguments_schema(schema)
        wrapped = (
            self.format is not None and arguments["properties"].keys() == {WRAPPED}
            if "properties" in arguments
            else False
        )
        own = isinstance(schema, dict) and WRAPPED in schema.get("properties", {})
        return json.dumps(json.loads(value)[WRAPPED]) if wrapped and not own else value

    def check(self, schema: Any, value: str) -> None:
        """The package's own final check. Raises `InvalidToolCall` or `InvalidOutput`."""
        if self.format is None:
            check_output(self._response(schema), value)
        else:
            check_call(self._tool(schema), value)

    def encode(self, text: str) -> list[int]:
        """Ids of an output, its markers as control tokens."""
        vocabulary = self._place.vocabulary
        if self.format is None:
            return vocabulary.encode_text(text)
        begin, end = self.format.call_begin, self.format.call_end
        inner = vocabulary.encode_text(text.removeprefix(begin).removesuffix(end))
        return [vocabulary.control[begin], *inner, vocabulary.control[end]]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._place.vocabulary.token_bytes, ids)).decode("utf-8", "replace")

    def _tool(self, schema: Any) -> Tool:
        return Tool(TOOL, parameters=schema)

    def _response(self, schema: Any) -> ResponseFormat:
        return ResponseFormat("json_schema", schema)


def compile_all(cases: Sequence[Case], surface: Surface, out: Outcome) -> list[Job]:
    """Part 1: compile, and offer the instances."""
    jobs = []
    for case in cases:
        begun = time.thread_time()
        try:
            compiled = surface.compile(case.schema)
        except CloverError as error:
            out.counts["refused"] += 1
            out.reasons[f"refused: {str(error)[:120]}"] += 1
            out.failures.append((case.name, f"refused: {error}"))
            continue
        out.compile_ms.append(1e3 * (time.thread_time() - begun))
        out.counts["compiled" if compiled.exactness == "exact" else "loosened"] += 1
        out.reasons.update(f"loosened: {keyword}" for keyword in {p.keyword for p in compiled.problems})
        lengths = [offered for test in case.tests if (offered := offer(case, test, compiled, surface, out))]
        try:
            judge = Judge(case.schema)
        except Exception:  # a schema that jsonschema cannot read at all
            judge = None
        jobs.append(Job(case, compiled, min(lengths, default=None), judge))
    return jobs


def offer(case: Case, test: tuple[bool, Any], compiled: Compiled, surface: Surface, out: Outcome) -> int | None:
    """Offer an instance to the grammar. Returns the number of its tokens if it is valid and was accepted."""
    valid, data = test
    text = surface.write(case.schema, in_schema_order(data, case.schema, case.schema))
    if text is None:
        return None
    ids = surface.encode(text)
    constraint = compiled.constraint.fork()
    accepted = constraint.valid_prefix(ids) == len(ids)
    if accepted:
        constraint.consume(ids)
        accepted = constraint.accepting()
    if compiled.exactness == "exact":
        out.counts["valid" if valid else "invalid"] += 1
        if valid and not accepted:
            undeclared = surface.format is not None and _undeclared(case.schema, data)
            out.counts["undeclared" if undeclared else "valid_refused"] += 1
        elif accepted and not valid:
            out.counts["invalid_accepted"] += 1
            out.failures.append((case.name, f"an invalid instance was accepted: {text[:300]}"))
    return len(ids) if accepted and valid else None


def _undeclared(schema: Any, data: Any) -> bool:
    """The schema declares properties, says nothing of others, and the instance has others."""
    if not isinstance(schema, dict) or "properties" not in schema or "additionalProperties" in schema:
        return False
    return isinstance(data, dict) and not data.keys() <= schema["properties"].keys()


class Listening(Babble):
    """Tells the accounts when a forward pass begins."""

    accounts: dict[int, Account]

    def forward(self, work: Sequence[Work]) -> BabbleHidden:
        for account in list(self.accounts.values()):
            account.settle()
        return super().forward(work)


async def generate_all(jobs: Sequence[Job], surface: Surface, model: Listening, limits: argparse.Namespace) -> Outcome:
    """Part 2: one output per schema, eight at a time."""
    out = Outcome()
    engine = Engine(model, EngineOptions(strategy=Strategy(limits.strategy)))
    engine.start()
    slots = asyncio.Semaphore(8)

    async def one(number: int, job: Job) -> None:
        async with slots:
            account = model.accounts[number] = Account()
            constraint = TimedConstraint(job.compiled.constraint.fork(), account)
            params = SamplingParams(max_tokens=limits.max_tokens)
            request = GenerationRequest(str(number), (number,), params, constraint)
            ids: list[int] = []
            step: Step | None = None
            try:
                async for step in engine.submit(request):
                    ids += step.tokens
                if constraint.inner.accepting():
                    judge_output(job, surface.decode(ids), surface, out)
                else:
                    fits = job.shortest is not None and job.shortest <= limits.max_tokens
                    out.counts["cut" if fits else "unfit"] += 1
                    if fits:
                        out.cut.append((job.case.name, surface.decode(ids)[-120:]))
            except CloverError as error:
                out.failures.append((job.case.name, f"{type(error).__name__}: {error}"))
            del model.accounts[number]
            out.step_ms += [1e3 * spent for spent in account.steps]
            if step is not None:
                out.steps += step.stats.denoising_steps
                out.blocks += -(-len(ids) // model.spec.block_size)
                out.tokens += len(ids)
                out.forced += step.stats.forced_tokens

    try:
        await asyncio.gather(*(one(number, job) for number, job in enumerate(jobs)))
    finally:
        await asyncio.to_thread(engine.close)
    return out


def judge_output(job: Job, text: str, surface: Surface, out: Outcome) -> None:
    """Count what came of one whole output: the way of the gateway, and then the independent judge."""
    schema = job.case.schema
    loosened = job.compiled.exactness == "loosened"
    try:
        value = surface.read(schema, text)
        surface.check(schema, value)
    except (InvalidToolCall, InvalidOutput) as error:
        out.counts["loosened_rejected" if loosened else "checked_rejected"] += 1
        if not loosened:
            out.failures.append((job.case.name, f"exact, yet refused by the check: {error}"))
        return
    verdict = job.judge.satisfied(surface.inner(schema, value)) if job.judge is not None else None
    if verdict is None:
        out.counts["unjudged"] += 1
    elif verdict:
        out.counts["finished_valid"] += 1
    else:
        out.counts["finished_invalid"] += 1
        out.failures.append((job.case.name, f"finished, yet invalid: {value[:400]}"))


def answers(jobs: Sequence[Job], surface: Surface, script: str, seed: int) -> list[str]:
    """What the scripts `perfect` and `corrupt` say: a valid instance, or a broken one."""
    rng = random.Random(seed)
    texts = []
    for job in jobs:
        schema = job.case.schema
        written = (
            surface.write(schema, in_schema_order(data, schema, schema)) for valid, data in job.case.tests if valid
        )
        text = next((text for text in written if text), "{}")
        texts.append(_broken(text, rng) if script == "corrupt" else text)
    return texts


def _broken(text: str, rng: random.Random) -> str:
    """The text with one to three edits: something dropped, doubled, or put in that does not belong."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(max(1, len(text)))
        edits = (
            text[:at] + text[at + 1 :],
            text[:at] + text[at : at + 4] + text[at:],
            text[:at] + rng.choice('"}],:{[x9') + text[at:],
        )
        text = rng.choice(edits)
    return text


def report(out: Outcome, generated: Outcome, schemas: int) -> dict[str, Any]:
    names = ("compiled", "loosened", "refused", "valid", "invalid", "valid_refused", "invalid_accepted", "undeclared")
    ends = ("finished_valid", "finished_invalid", "loosened_rejected", "checked_rejected", "cut", "unfit", "unjudged")
    figures: dict[str, Any] = {"schemas": schemas}
    figures |= {name: out.counts[name] for name in names} | {name: generated.counts[name] for name in ends}
    figures["forwards_per_block"] = round(generated.steps / max(1, generated.blocks), 3)
    figures["forced_share"] = round(generated.forced / max(1, generated.tokens), 3)
    for name, samples in (("compile", out.compile_ms), ("constraint", generated.step_ms)):
        figures[f"{name}_ms_p50"] = round(statistics.median(samples or [0.0]), 4)
        figures[f"{name}_ms_p99"] = round(sorted(samples or [0.0])[int(0.99 * len(samples))], 4)
    figures["reasons"] = dict(out.reasons.most_common(40))
    return figures | {"failures": out.failures + generated.failures, "cut_ends": generated.cut}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the grammar holds, measured.")
    parser.add_argument("--schemas", type=Path, required=True)
    parser.add_argument("--vocab", choices=("sprout", "qwen"), default="qwen")
    parser.add_argument("--format", choices=("response_format", *FORMATS), default="response_format")
    parser.add_argument("--script", choices=("perfect", "corrupt", "gibberish", "adversarial"), default="gibberish")
    parser.add_argument("--strategy", choices=[strategy.value for strategy in Strategy], default="prefix")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--dense", action="store_true", help="logits over the whole vocabulary")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    place = setting(args.vocab)
    surface = Surface(args.format, place)
    cases = read_cases(args.schemas)
    if args.limit is not None and args.limit < len(cases):
        cases = random.Random(args.seed).sample(cases, args.limit)
    out = Outcome()
    jobs = compile_all(cases, surface, out)
    texts = answers(jobs, surface, args.script, args.seed)
    model = Listening(place, args.script, texts, surface.closers, seed=args.seed, dense=args.dense)
    model.accounts = {}
    generated = asyncio.run(generate_all(jobs, surface, model, args))
    settings = {"vocab": args.vocab, "format": args.format, "script": args.script, "strategy": args.strategy}
    figures = settings | {"dense": args.dense, "max_tokens": args.max_tokens} | report(out, generated, len(cases))
    args.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({k: v for k, v in figures.items() if k not in ("failures", "reasons", "cut_ends")}, indent=1))


if __name__ == "__main__":
    main()
