"""Where the bundled templates lie: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

from clover_agent.errors import LoadFailed

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = (PACKAGE / "tool_templates", PACKAGE.parent / "tool_templates")


def template_source(name: str) -> str:
    """The Jinja source of `tool_templates/NAME.jinja`. Raises `LoadFailed` if there is none of that name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    known = {path.stem: path for path in folder.glob("*.jinja")}
    if name not in known:
        raise LoadFailed(f"There is no chat template {name!r}. Bundled: {', '.join(sorted(known))}.")
    return known[name].read_text(encoding="utf-8")
