"""The gateway's HTTP faces. `create_app` is the way in; request schemas and FastAPI do not leave this package."""

from clover_agent.api.app import create_app
from clover_agent.api.gateway import Gateway, Service
from clover_agent.api.server import Server

__all__ = ["Gateway", "Server", "Service", "create_app"]
