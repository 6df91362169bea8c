"""The agents, each as its example says to run it: its configuration from examples/, its command line, its own HOME.

A client is a program that was not written for these tests; what it starts is killed when its run is over.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
INSTALLED = ROOT / ".agents"
EXAMPLES = ROOT / "examples"
URL_IN_EXAMPLES = "http://127.0.0.1:8000"

Call = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where one run takes place."""

    home: Path
    work: Path
    url: str

    def configure(self, example: str, to: str) -> Path:
        """An example's file, with the base URL of this run, at a path under HOME."""
        target = self.home / to
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((EXAMPLES / example).read_text().replace(URL_IN_EXAMPLES, self.url))
        return target

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        path = f"{Path(shutil.which('node') or '/usr/bin/node').parent}:/usr/local/bin:/usr/bin:/bin"
        return {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", "CI": "1", **extra}


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `returncode` is None where it was stopped."""

    returncode: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Client:
    """One agent. `prepare` writes its configuration and returns its command line and environment; `command` and `write`
    say a shell command or a file with text in its own tools' terms; `too_long` is what its user reads when the prompt
    does not fit: the gateway's words, or its own for the gateway's code."""

    name: str
    program: Path
    prepare: Callable[[Place, Path], tuple[list[str], dict[str, str]]]
    command: Callable[[str], Call]
    write: Callable[[str, str], Call]
    too_long: str = "this model's context is 512"

    @property
    def replay(self) -> Path:
        return EXAMPLES / self.name / "replay.jsonl"

    def start(self, place: Place, prompt: str) -> subprocess.Popen[str]:
        command, extra = self.prepare(place, self.program)
        return subprocess.Popen(
            [*command, prompt],
            cwd=place.work,
            env=place.environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, place: Place, prompt: str, limit_s: float = 90) -> Outcome:
        """Run to the end, or for `limit_s` seconds."""
        process = self.start(place, prompt)
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
            return Outcome(process.returncode, stdout, stderr)
        except subprocess.TimeoutExpired:
            stop(place.home)
            stdout, stderr = process.communicate()
            return Outcome(None, stdout, stderr)
        finally:
            stop(place.home)


def stop(home: Path) -> None:
    """Kill whatever runs with this HOME, daemons that left the process group included."""
    mark = f"HOME={home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def _continue(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    config = place.configure("continue/config.yaml", "config.yaml")
    extra = {"CONTINUE_GLOBAL_DIR": str(place.home / ".continue"), "CONTINUE_TELEMETRY_ENABLED": "0"}
    return [str(program), "-p", "--auto", "--config", str(config)], extra


def _pi(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    place.configure("pi/models.json", ".pi/agent/models.json")
    options = ["-p", "--offline", "--no-session", "--provider", "clover", "--model", "clover"]
    return [str(program), *options], {"PI_OFFLINE": "1"}


def _hermes(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    place.configure("hermes/config.yaml", ".hermes/config.yaml")
    return [str(program), "--yolo", "-z"], {"HERMES_HOME": str(place.home / ".hermes")}


def _cline(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    place.configure("cline/providers.json", ".cline/data/settings/providers.json")
    return [str(program), "-P", "openai-compatible", "-m", "clover", "--json", "-c", str(place.work)], {}


def _codex(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    config = place.configure("codex/config.toml", ".codex/config.toml")
    options = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [str(program), *options], {"CODEX_HOME": str(config.parent)}


def call(name: str, **arguments: Any) -> Call:
    """A tool call, as replay files have it."""
    return {"name": name, "arguments": arguments}


CLIENTS = (
    Client(
        "continue",
        INSTALLED / "continue/node_modules/.bin/cn",
        _continue,
        command=lambda text: call("Bash", command=text),
        write=lambda path, text: call("Write", filepath=path, content=text),
    ),
    Client(
        "pi",
        INSTALLED / "pi/node_modules/.bin/pi",
        _pi,
        command=lambda text: call("bash", command=text),
        write=lambda path, text: call("write", path=path, content=text),
    ),
    Client(
        "hermes",
        INSTALLED / "hermes/bin/hermes",
        _hermes,
        command=lambda text: call("terminal", command=text),
        write=lambda path, text: call("write_file", path=path, content=text),
    ),
    Client(
        "cline",
        INSTALLED / "cline/node_modules/.bin/cline",
        _cline,
        command=lambda text: call("run_commands", commands=[text]),
        write=lambda path, text: call("editor", path=path, new_text=text),
    ),
    Client(
        "codex",
        INSTALLED / "codex/node_modules/.bin/codex",
        _codex,
        command=lambda text: call("exec_command", cmd=text),
        # It has a tool of its own for files only for models that it knows.
        write=lambda path, text: call("exec_command", cmd=f"cat > {path} <<'END'\n{text}END\n"),
        too_long="Codex ran out of room in the model's context window",
    ),
)
