"""`clover-agent serve`: start the gateway. Its flags are the fields of `settings`, one to one."""

import inspect
import logging
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from clover_agent.api import Server, Service, create_app
from clover_agent.cli.allocator import keep_freed_memory
from clover_agent.errors import LoadFailed
from clover_agent.settings import GROUPS, Settings
from clover_agent.telemetry import setup_logging

logger = logging.getLogger("clover_agent.serve")

METAVARS: dict[type, str] = {int: "INTEGER", float: "NUMBER", Path: "FILE", dict: "JSON"}


def serve(config: Path | None = None, **flags: Any) -> None:
    """Start the gateway. Every flag may also come from the environment (CLOVER_PORT) or a file (--config)."""
    try:
        settings = Settings.load(config, {name: _plain(value) for name, value in flags.items()})
    except LoadFailed as error:
        raise typer.BadParameter(str(error)) from error
    setup_logging(settings.server.log_level, settings.server.log_format)
    keep_freed_memory()
    server = Server(create_app(lambda: _load(settings), settings), settings.server)
    server.run()
    if server.gateway.load_error is not None:
        typer.echo(f"Error: {server.gateway.load_error}", err=True)
        raise typer.Exit(1)


def _load(settings: Settings) -> Service:
    from clover_agent.loading import load_service  # noqa: PLC0415 - torch: the port answers before it is imported

    service = load_service(settings)
    logger.info("ready", extra={"fields": {"models": ",".join(service.model_ids), "context": service.max_context}})
    return service


def _plain(value: Any) -> Any:
    """An empty list is a repeatable flag that was not given."""
    return None if value == [] else value


def _parameters() -> Iterator[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    config = Annotated[Path | None, typer.Option(help="A TOML file with the sections model, engine and server.")]
    yield inspect.Parameter("config", keyword, default=None, annotation=config)
    for group in GROUPS.values():
        for name, field in group.model_fields.items():
            yield inspect.Parameter(name, keyword, default=None, annotation=_option(name, field))


def _option(name: str, field: FieldInfo) -> Any:
    """The flag of a field. Values stay text (pydantic reads them, as it reads the environment); None = not given."""
    kind = _kind(field.annotation)
    default = "" if field.default in (None, (), {}) else f" (default: {field.default})"
    flag = f"--{name.replace('_', '-')}"
    help_ = f"{field.description}{default}"
    if kind is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=help_)]
    value = list[str] | None if kind is tuple else str | None
    choices = "|".join(get_args(field.annotation)) if get_origin(field.annotation) is Literal else None
    return Annotated[value, typer.Option(flag, help=help_, metavar=choices or METAVARS.get(kind, "TEXT"))]


def _kind(annotation: Any) -> type:
    """The bare type of a field: `int` of `int | None`, `tuple` of `tuple[str, ...]`, `str` of a Literal."""
    if get_origin(annotation) in (types.UnionType, Union):
        annotation = next(option for option in get_args(annotation) if option is not type(None))
    bare = get_origin(annotation) or annotation
    return bare if isinstance(bare, type) else str


serve.__signature__ = inspect.Signature([*_parameters()])  # type: ignore[attr-defined]
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters()}
