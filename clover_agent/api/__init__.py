"""The gateway's HTTP faces. `create_app` is the way in; request schemas and FastAPI do not leave this package."""

from clover_agent.api.app import create_app
from clover_agent.api.gateway import Gateway, Service
from clover_agent.api.server import Server
from clover_agent.api.system import CONTEXT_NAMES

__all__ = ["CONTEXT_NAMES", "Gateway", "Server", "Service", "create_app"]
