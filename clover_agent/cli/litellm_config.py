"""`clover-agent litellm-config`: print a configuration for the LiteLLM proxy. Loads no model and needs no litellm."""

from pathlib import Path
from typing import Annotated

import typer

from clover_agent.errors import LoadFailed
from clover_agent.loading import REPLAY, announced
from clover_agent.proxy_config import Deployment, proxy_config
from clover_agent.settings import ModelSettings, Settings


def litellm_config(
    model: Annotated[
        str | None, typer.Option(help="As for serve: sprout, replay:FILE, or the path of a checkpoint.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What clients of the proxy call it. Default: the model's name.")
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(
            help="A running gateway: its port on this machine, or its URL. May repeat. None: the engine runs inside "
            "the proxy.",
            metavar="PORT|URL",
        ),
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Context length. Default: the checkpoint's.")] = None,
    port: Annotated[int, typer.Option(help="The proxy's port, in the command that the file starts with.")] = 4000,
) -> None:
    """Print a configuration for the LiteLLM proxy: the engine inside it, or in front of running gateways."""
    try:
        settings = Settings.load(flags={"model": model, "max_model_len": max_model_len})
        (served, *_), context = announced(settings)
    except LoadFailed as error:
        raise typer.BadParameter(str(error)) from error
    deployment = Deployment(
        name=name or served,
        model=served,
        max_context=context,
        gateways=[_base(one) for one in gateway or ()],
        environment=None if gateway else _environment(settings.model),
    )
    typer.echo(proxy_config(deployment, port=port), nl=False)


def _base(gateway: str) -> str:
    if gateway.isdecimal():
        return f"http://127.0.0.1:{gateway}/v1"
    url = (gateway if "://" in gateway else f"http://{gateway}").rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _environment(wanted: ModelSettings) -> dict[str, str]:
    """What makes the proxy load the same model, wherever it is started."""
    environment = {"CLOVER_MODEL": _absolute(wanted.model)}
    if wanted.served_model_name:
        environment["CLOVER_SERVED_MODEL_NAME"] = ",".join(wanted.served_model_name)
    if wanted.max_model_len is not None:
        environment["CLOVER_MAX_MODEL_LEN"] = str(wanted.max_model_len)
    return environment


def _absolute(model: str) -> str:
    kind = REPLAY if model.startswith(REPLAY) else ""
    return model if model == "sprout" else f"{kind}{Path(model.removeprefix(kind)).resolve()}"
