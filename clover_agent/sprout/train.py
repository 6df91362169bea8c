"""Train sprout, or any small model of the hybrid family, on shards.

    python -m clover_agent.sprout.train --data DIR --out DIR --minutes N [--resume | --start EXPORT --peak F]

--data DIR holds
    prompts.npy, prompt_offsets.npy, responses.npy, response_offsets.npy, difficulty.npy
                            here or in sub-directories: `shards.py` says what is in them, its `save_shards` writes them
    tokenizer.json          its "<|mask|>", "<|im_end|>" and "<|endoftext|>" are mask, end and padding token; copied
                            into exports; tokens that differ by a leading space are tied (`twins.py`)
    config.json             optional: the model's (without it: `architecture.sprout_config`)
    generation_config.json  optional: copied into exports
--out DIR receives
    checkpoint.pt           everything needed to go on (`--resume`), written atomically every few minutes
    log.jsonl, loss.png     the losses so far
    export-STEP/            a checkpoint directory that `model.load_native` reads, written at the end of a run

A run is warm-up, constant rate, and over the last `--decay` share of its budget a linear decay to zero. The decay is a
branch: checkpoint.pt is written before it and left alone after it, so training resumes at the full rate while every run
still ends with a usable export. `--resume --decay 1 --minutes 5` makes only such an export from a checkpoint.

`--start EXPORT` begins from exported weights, whose optimisers are lost, instead of random ones: a new training with
its own steps. `--peak F` is the share of the full rate that it rises to; decayed weights want less than all of it.

Masks and batches are drawn from the seed and the place in the data, and no layer draws random numbers, so a checkpoint
needs no generator state. The same code runs on CPU and CUDA (`--device cuda --rows 131072`: bfloat16 autocast).
"""

import argparse
import ctypes
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from clover_agent.errors import CloverError, LoadFailed
from clover_agent.model.config import ModelConfig
from clover_agent.model.transformer import HybridTransformer
from clover_agent.model.weights import read_tensors, save_native

from .architecture import read_config
from .batches import Batch, BatchMaker, Place
from .checkpoint import Progress, load_checkpoint, save_checkpoint
from .narrow import NarrowLinear, has_bfloat16
from .objective import KINDS, check_trainable, training_losses
from .optim import make_optimizers, rate_factor, set_rate
from .report import Report, write_log
from .shards import load_shards
from .twins import TwinTable, read_tokenizer, read_twins

TRIM_EVERY = 25  # steps
Q_NORM, K_NORM = 1.2, 0.6  # added to the unit norms: with small heads, unit norms are too flat to copy from 200 keys


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """minutes, steps: the budget of this run, whichever is spent first; decay: share of it with a falling rate.

    start, peak: an export to begin from, and the share of the full rate to rise to; see the module's docstring.
    """

    data: Path
    out: Path
    minutes: float | None = None
    steps: int | None = None
    resume: bool = False
    start: Path | None = None
    peak: float = 1.0
    decay: float = 0.15
    warmup: int = 60
    rows: int = 4096
    copies: int = 2
    max_length: int = 1024
    level_tokens: int = 2_000_000
    seed: int = 0
    device: str = "cpu"
    save_minutes: float = 5.0
    log_every: int = 25


class Trainer:
    """Model, optimisers and data of one run."""

    def __init__(self, options: TrainOptions, console: Console) -> None:
        self.options, self.console = options, console
        self.device = torch.device(options.device)
        torch.manual_seed(options.seed)
        self.raw_config = read_config(options.start or options.data)
        config = ModelConfig.from_dict(self.raw_config)
        check_trainable(config)
        self.model = HybridTransformer(config)
        self.model.initialise()
        sharpen_attention(self.model)
        self.twins = TwinTable(read_twins(options.data, config.vocab_size), config.hidden_size)
        if options.start:
            self.begin_from(options.start)
        self.model.to(self.device)
        self.twins.to(self.device)
        named = [*self.model.named_parameters(), *self.twins.named_parameters()]
        self.parameters = [parameter for _, parameter in named]
        self.optimizers = make_optimizers(named)
        self.maker = BatchMaker(
            load_shards(options.data),
            mask_id=config.mask_token_id,
            end_id=config.end_token_ids[0],
            block_size=config.block_size,
            copies=options.copies,
            rows=options.rows,
            max_length=options.max_length,
            seed=options.seed,
        )
        self.progress = Progress()
        if options.resume and self.checkpoint.exists():
            self.load()

    @property
    def checkpoint(self) -> Path:
        return self.options.out / "checkpoint.pt"

    def begin_from(self, export: Path) -> None:
        """Take the weights of an export. Raises `LoadFailed` where they do not fit."""
        files = [directory / "tokenizer.json" for directory in (export, self.options.data)]
        if all(file.exists() for file in files) and read_tokenizer(files[0]) != read_tokenizer(files[1]):
            raise LoadFailed(f"{files[1]}: the data was built with another tokenizer than {export} has")
        shapes = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}
        tensors = read_tensors(export, shapes, device="cpu", dtype=torch.float32)
        tensors["embed_tokens.weight"] = self.twins.split(tensors["embed_tokens.weight"])
        self.model.load_state_dict(tensors)

    def load(self) -> None:
        self.progress, tensors = load_checkpoint(self.checkpoint, self.device)
        try:
            self.model.load_state_dict(tensors["model"])
            self.twins.load_state_dict(tensors["twins"])
            for optimizer, state in zip(self.optimizers, tensors["optimizers"], strict=True):
                optimizer.load_state_dict(state)
        except (KeyError, ValueError, RuntimeError) as error:
            raise LoadFailed(f"{self.checkpoint}: does not fit this model and data: {error}") from error
        self.console.print(f"resumed at step {self.progress.step:,}, {self.progress.tokens:,} tokens")

    def save(self) -> None:
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        tensors = {"model": self.model.state_dict(), "twins": self.twins.state_dict(), "optimizers": optimizers}
        save_checkpoint(self.checkpoint, self.progress, tensors)
        write_log(self.options.out, self.progress.history)

    def export(self) -> Path:
        """Write the weights as they are now to `export-STEP`, embeddings composed."""
        path = self.options.out / f"export-{self.progress.step:06d}"
        with torch.no_grad():
            tensors = dict(self.model.state_dict())
            tensors["embed_tokens.weight"] = self.twins(self.model.embed_tokens.weight)
        save_native(path, self.raw_config, {name: tensor.cpu() for name, tensor in tensors.items()})
        for name in ("tokenizer.json", "generation_config.json"):
            if (self.options.data / name).exists():
                shutil.copyfile(self.options.data / name, path / name)
        return path

    def narrowing(self) -> AbstractContextManager[object]:
        """Bfloat16 products where the hardware has them."""
        if self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return NarrowLinear() if has_bfloat16() else nullcontext()

    def step(self, batch: Batch, factor: float) -> dict[str, float]:
        """One update; the losses by kind, the share of masked tokens ranked first, the gradient's norm."""
        set_rate(self.optimizers, factor)
        with self.narrowing():
            losses = training_losses(self.model, batch.to(self.device), self.twins(self.model.embed_tokens.weight))
        losses.total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, error_if_nonfinite=True)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        by_kind = dict(zip(KINDS, losses.by_kind.tolist(), strict=True))
        return {**by_kind, "accuracy": losses.accuracy.item(), "grad_norm": norm.item()}


def run(options: TrainOptions, console: Console) -> Path:
    """Train within the budget, then export; returns the export's directory. Raises `LoadFailed` on unusable input."""
    if options.minutes is None and options.steps is None:
        raise LoadFailed("give the run a budget: --minutes or --steps")
    trainer = Trainer(options, console)
    options.out.mkdir(parents=True, exist_ok=True)
    budget = Budget(options, trainer.progress)
    sizes = sum(parameter.numel() for parameter in trainer.parameters)
    console.print(f"{sizes:,} parameters, {len(trainer.maker.shards):,} examples, {torch.get_num_threads()} threads")
    saved, branch = time.monotonic(), False
    with Report(console, options.log_every) as report:
        try:
            for place, batch in batches(trainer):
                used = budget.used(trainer.progress)
                if not branch and used >= 1 - options.decay:
                    trainer.save()
                    branch = True
                if used >= 1:
                    break
                factor = options.peak * rate_factor(
                    trainer.progress.step, used, warmup=options.warmup, decay=options.decay
                )
                figures = trainer.step(batch, factor)
                advance(trainer.progress, place, batch, budget)
                report.step(trainer.progress, figures, factor, used)
                if trainer.progress.step % TRIM_EVERY == 0:
                    return_memory()
                if not branch and time.monotonic() - saved > options.save_minutes * 60:
                    trainer.save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            console.print("interrupted")
        if not branch:
            trainer.save()
    path = trainer.export()
    write_log(options.out, trainer.progress.history)
    console.print(f"exported to {path}")
    return path


class Budget:
    """How much of a run's minutes or steps is spent."""

    def __init__(self, options: TrainOptions, progress: Progress) -> None:
        self.options = options
        self.began, self.first = time.monotonic(), progress.step
        self.before = progress.seconds

    @property
    def seconds(self) -> float:
        """Training time over all runs."""
        return self.before + time.monotonic() - self.began

    def used(self, progress: Progress) -> float:
        minutes, steps = self.options.minutes, self.options.steps
        by_time = (time.monotonic() - self.began) / (minutes * 60) if minutes else 0.0
        by_step = (progress.step - self.first) / steps if steps else 0.0
        return min(1.0, max(by_time, by_step))


def batches(trainer: Trainer) -> Iterator[tuple[Place, Batch]]:
    """Endless (place after the batch, batch), from the place in the trainer's progress on."""
    place = trainer.progress.place
    empty = 0
    while True:
        if place.batch == 0:
            place = replace(place, level=trainer.progress.tokens // trainer.options.level_tokens)
        window = trainer.maker.window(place)
        for index in range(place.batch, len(window)):
            here = replace(place, batch=index)
            yield replace(place, batch=index + 1), trainer.maker.batch(window[index], here)
        empty = 0 if window else empty + 1
        if empty > len(trainer.maker.shards):
            raise LoadFailed("no example is short and easy enough: raise --max-length, or let difficulties start at 0")
        place = Place(place.window + 1)


def advance(progress: Progress, place: Place, batch: Batch, budget: Budget) -> None:
    progress.step += 1
    progress.tokens += batch.tokens
    progress.place, progress.seconds = place, budget.seconds


def return_memory() -> None:
    """Give freed memory back where the C library is glibc, which keeps what lies between tensors that live: batches of
    ever new shapes leave more and more of that. Elsewhere nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def sharpen_attention(model: HybridTransformer) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("q_norm.weight"):
                parameter.add_(Q_NORM)
            elif name.endswith("k_norm.weight"):
                parameter.add_(K_NORM)


def parse(arguments: list[str] | None = None) -> TrainOptions:
    """Command line -> options: every field is a flag of its name."""
    parser = argparse.ArgumentParser(
        prog="python -m clover_agent.sprout.train", description="See the module docstring."
    )
    defaults = asdict(TrainOptions(Path(), Path()))
    for name, default in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, Path):
            parser.add_argument(flag, type=Path, required=True)
        else:
            kind = {"steps": int, "minutes": float, "start": Path}.get(name, type(default))
            parser.add_argument(flag, type=kind, default=default)
    return TrainOptions(**vars(parser.parse_args(arguments)))


def main() -> None:
    console = Console()
    # Save before dying; SIGINT too, which a shell sets to "ignore" in what it starts in the background.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        run(parse(), console)
    except CloverError as error:
        console.print(f"[red]{error}[/red]")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
