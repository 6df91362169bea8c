"""The import rule and the size limits of docs/architecture.md, checked on the source itself.

Imports inside functions and under TYPE_CHECKING count too: a layer that is only imported late is still a dependency.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "clover_agent"
FILES = sorted(PACKAGE.rglob("*.py"))

LEAVES = {"types", "errors", "settings", "telemetry", "tokenizer"}
# Part -> the parts it may import. A part is a top-level module or sub-package of clover_agent.
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "settings": {"types", "errors"},
    "telemetry": {"types", "errors"},
    "tokenizer": {"types", "errors"},
    "formats": {"types", "errors"},
    "templates": {"types", "errors", "formats"},
    "grammar": {"types", "errors", "formats"},
    "parsing": {"types", "errors", "formats"},
    "model": {"types", "errors"},
    "engine": {"types", "errors", "telemetry", "model"},
    "turn": {"types", "errors", "tokenizer", "formats", "grammar", "parsing"},
    "chat": {"turn", *LEAVES, "formats", "templates", "grammar", "parsing", "model", "engine"},
    "replay": {*LEAVES, "formats", "model"},
    "own_code": {*LEAVES, "templates", "model"},
    "loading": {"replay", "own_code", *LEAVES, "formats", "templates", "grammar", "parsing", "model", "engine", "chat"},
    "sprout": {*LEAVES, "formats", "templates", "model"},
    "api": {*LEAVES, "parsing", "formats", "chat"},
    "doctor": {"api"},
    "proxy_config": set(),
    "litellm_provider": {*LEAVES, "proxy_config", "parsing", "api", "chat", "loading"},
    "cli": {*LEAVES, "formats", "templates", "parsing", "api", "chat", "loading", "sprout", "proxy_config", "doctor"},
    "__init__": set(),
    "__main__": {"cli"},
}
# Heavy third-party package -> the parts that may import it.
THIRD_PARTY: dict[str, set[str]] = {
    "torch": {"model", "engine", "sprout", "loading", "own_code"},
    "fastapi": {"api"},
    "starlette": {"api"},
    "litellm": {"litellm_provider"},
    "llguidance": {"grammar"},
    "jinja2": {"templates"},
}


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute dotted names of everything that a file imports."""
    package = ["clover_agent", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "clover_agent":
                yield from (f"clover_agent.{alias.name}" for alias in node.names)
            else:
                yield module


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_rule(path: Path) -> None:
    part = part_of(path)
    assert part in ALLOWED, f"{part} is not in the import rule: add it to docs/architecture.md and to ALLOWED"
    for module in imported_modules(path):
        top, _, rest = module.partition(".")
        if top == "clover_agent":
            target = rest.split(".")[0]
            if target in ("", "__version__", part):
                continue
            assert target in ALLOWED[part], f"{path.name}: {part} may not import {target}"
        elif top in THIRD_PARTY:
            assert part in THIRD_PARTY[top], f"{path.name}: {part} may not import {top}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_sizes(path: Path) -> None:
    source = path.read_text()
    lines = source.count("\n")
    assert lines <= 400, f"{path.name} has {lines} lines (most: 400)"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{path.name}:{node.lineno} {node.name} has {length} lines (most: 60)"


def test_median_file_is_readable() -> None:
    sizes = sorted(path.read_text().count("\n") for path in FILES if path.name != "__init__.py")
    assert sizes[len(sizes) // 2] <= 250


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), f"{path.name} has no module docstring"


def test_no_part_is_missing_from_the_rule_and_none_is_left_over() -> None:
    parts = {part_of(path) for path in FILES}
    assert parts <= set(ALLOWED)
    assert "utils" not in parts
