"""Runs one request through scheduler, runner and denoising on the test's own thread, checking the invariants."""

from clover_agent.engine import EngineOptions, GenerationRequest
from clover_agent.engine.request import Sequence
from clover_agent.engine.runner import Runner
from clover_agent.engine.scheduler import Scheduler
from clover_agent.model.protocol import BlockModel
from clover_agent.types import Constraint, SamplingParams, Step
from tests.engine.fakes import AutomatonConstraint, fake


def request(
    params: SamplingParams, prompt: tuple[int, ...] = (5, 6, 7), constraint: Constraint | None = None, name: str = "r"
) -> GenerationRequest:
    return GenerationRequest(name, prompt, params, constraint)


def drive(
    model: BlockModel, wish: GenerationRequest, options: EngineOptions | None = None
) -> tuple[Sequence, list[Step]]:
    """The finished sequence and its steps. Raises the request's error, if it fails."""
    options = options or EngineOptions()
    runner, scheduler = Runner(model, options), Scheduler(options)
    seq = Sequence(wish, model.spec)
    scheduler.add(seq)
    scheduler.admit()
    if (failure := runner.start(seq)) is not None:
        raise failure
    steps = [step] if (step := seq.take()) is not None else []
    check(seq, options)
    while not seq.finished:
        before, standing = list(seq.output), set(seq.block.tentative())
        block, denoised = seq.block, seq.stats.denoising_steps
        for error in runner.step(scheduler.batch(())).values():
            raise error
        assert seq.output[: len(before)] == before, "a final token changed"
        if seq.stats.denoising_steps > denoised and seq.block is block and not seq.finished:  # I2
            assert len(seq.output) > len(before) or set(block.tentative()) - standing, "no progress"
        check(seq, options)
        if (step := seq.take()) is not None:
            steps.append(step)
    assert [token for step in steps for token in step.tokens] == seq.output
    assert steps[-1].finish == seq.finish_reason
    assert steps[-1].stats == seq.stats
    return seq, steps


def check(seq: Sequence, options: EngineOptions) -> None:
    """What holds between any two steps."""
    prompt, block = seq.request.prompt_ids, seq.block
    state = fake(seq.state) if seq.state is not None else None
    assert len(seq.output) <= seq.params.max_tokens
    assert all(token is not None for token in block.tokens[: block.frontier])
    assert all(token is None for token in block.tokens[block.limit :])
    ends = seq.end_ids if seq.constraint is None else seq.spec.end_token_ids  # a grammar may want a stop token
    assert not {*seq.output} & {*ends, seq.spec.mask_token_id}
    if state is not None:  # I6, I3: only whole blocks of final tokens are committed, after the prompt, in order
        assert [*prompt, *seq.output][: len(state.tokens)] == state.tokens
        assert sum(map(len, seq.pending)) + len(state.tokens) + block.frontier <= len(prompt) + len(seq.output)
        assert seq.finished or len(state.tokens) <= len(prompt) + len(seq.output) - block.frontier
    if isinstance(seq.constraint, AutomatonConstraint):
        assert seq.constraint.consumed == seq.output  # I1, I8
        if seq.finish_reason == "stop":
            assert seq.constraint.accepting()  # I4
    positions = max(1, seq.params.block_size or seq.spec.block_size)
    blocks = len(seq.output) // positions + 2
    assert seq.stats.denoising_steps <= blocks * positions * (1 + options.max_strikes)
    assert seq.stats.denoising_steps <= seq.stats.forwards
