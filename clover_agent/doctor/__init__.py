"""Does an OpenAI-compatible endpoint carry an agent? Staged checks from the outside, for any server.

Knows nothing of this package's own server: what it demands is what agents' clients demand. Prints nothing.
"""

from clover_agent.doctor.report import Result, Status, as_dicts, exit_code
from clover_agent.doctor.stages import STAGES, Stage, examine
from clover_agent.doctor.wire import Endpoint

__all__ = ["STAGES", "Endpoint", "Result", "Stage", "Status", "as_dicts", "examine", "exit_code"]
