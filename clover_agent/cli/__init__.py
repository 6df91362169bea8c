"""The command line: `clover-agent COMMAND`. One file per command; a command's file is imported only when it is used."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from clover_agent import __version__

# Command -> its line in the help. The command's function has the same name as its file, with _ for -.
COMMANDS = {
    "serve": "Start the gateway.",
    "demo": "Watch the embedded model call a tool, start to finish.",
    "render": "Print the exact prompt of a request, segments marked.",
    "parse": "Parse model output into an assistant message.",
    "litellm-config": "Print a configuration for the LiteLLM proxy.",
    "doctor": "Check any OpenAI-compatible endpoint, stage by stage.",
    "bench": "Measure how fast any OpenAI-compatible endpoint answers.",
    "evaluate": "Score any OpenAI-compatible endpoint on tool-calling records.",
}


class _Commands(TyperGroup):
    """Looks a command up in `COMMANDS` and imports its file, so that `--help` does not wait for torch."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        file = cmd_name.replace("-", "_")
        module = import_module(f"clover_agent.cli.{file}")
        one = typer.Typer(add_completion=False)
        one.command(name=cmd_name)(getattr(module, file))
        return typer.main.get_command(one)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version, is_eager=True),
) -> None:
    """An OpenAI-compatible gateway around a block-diffusion language model."""


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="clover-agent")
