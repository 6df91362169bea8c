"""Regular expressions of JSON Schema (ECMA-262) in the syntax that linear-time engines share.

The result means the same to RE2 (which checks values) and to the grammar's engine. Not expressible, and refused:
look-around, back-references, and what either engine does not have. Knows nothing of schemas.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import re2

SPACE = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
ANYTHING = "(?s:.*)"
MAX_LENGTH = 4_000

_ESCAPES = {"t": r"\t", "n": r"\n", "r": r"\r", "v": r"\x0b", "f": r"\x0c", "0": r"\x00"}
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACE}  # ASCII digits and words, as ECMA-262 has them
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[ux]\{([0-9a-fA-F]{1,6})\}")
_PROPERTY = re.compile(r"[pP]\{(?:General_Category=|gc=|Script=|sc=)?(\w+)\}")
_GROUP = re.compile(r"\(\?(?::|<\w+>)|\((?!\?)")
_QUANTIFIER = re.compile(r"(?:[*+]|\?|\{\d+(?:,\d*)?\})\??")
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")


class UnsupportedPatternError(ValueError):
    """A regular expression that no linear-time engine here can hold."""


@lru_cache(maxsize=1024)
def translate(pattern: str) -> str:
    """The pattern in the shared syntax. Raises `UnsupportedPatternError`."""
    return "".join(_parts(pattern))


@lru_cache(maxsize=1024)
def whole(pattern: str) -> str:
    """The pattern as an expression for the whole string: what is not anchored may stand inside anything.

    Raises `UnsupportedPatternError`, also for anchors that are not at the ends of a top-level branch.
    """
    branches: list[list[str]] = [[]]
    depth = 0
    for part in _parts(pattern):
        depth += (part == "(?:") - (part == ")")
        if part == "|" and depth == 0:
            branches.append([])
        else:
            branches[-1].append(part)
    return "|".join(_whole_branch(branch) for branch in branches)


def without(text: str) -> str:
    """An expression for all strings that do not contain `text`, whose first character must not come again in it.

    It says so without a complement: of a complement the grammar's engine would have to find out, at great cost, when
    nothing more can match.
    """
    head = re.escape(text[0])
    prefixes = [re.escape(text[:n]) for n in range(1, len(text))]
    begun = "|".join(reversed(prefixes))
    gone_on = "|".join(f"{prefix}[^{head}{re.escape(text[n])}]" for n, prefix in enumerate(prefixes, 1))
    return f"[^{head}]*(?:(?:{begun})*(?:{gone_on})[^{head}]*)*(?:{begun})*"


def _whole_branch(parts: list[str]) -> str:
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    inner = parts[begins : len(parts) - ends]
    if "^" in inner or "$" in inner:
        raise UnsupportedPatternError("an anchor inside the expression")
    return f"{'' if begins else ANYTHING}(?:{''.join(inner)}){'' if ends else ANYTHING}"


def _parts(pattern: str) -> list[str]:
    if len(pattern) > MAX_LENGTH:
        raise UnsupportedPatternError(f"longer than {MAX_LENGTH} characters")
    out: list[str] = []
    at = 0
    while at < len(pattern):
        part, at = _part(pattern, at)
        out.append(part)
    return out


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> "re2._Regexp":
    """RE2's program of the pattern. Raises `UnsupportedPatternError`."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(translate(pattern), options)
    except re2.error as error:
        raise UnsupportedPatternError(str(error)) from error


@lru_cache(maxsize=1024)
def checker(pattern: str) -> Callable[[str], bool]:
    """Whether a string matches, in linear time. Look-ahead at the very start, its usual place, is taken apart.

    Raises `UnsupportedPatternError` for look-around elsewhere and back-references.
    """
    if not pattern.startswith(("^(?=", "^(?!")):
        program = compiled(pattern)
        return lambda text: program.search(text) is not None
    demands: list[tuple[bool, re2._Regexp]] = []
    at = 1
    while pattern.startswith(("(?=", "(?!"), at):
        end = _group_end(pattern, at)
        demands.append((pattern[at + 2] == "=", compiled(f"^(?:{pattern[at + 3 : end - 1]})")))
        at = end
    if "|" in _top_level(_parts(pattern[at:])):
        raise UnsupportedPatternError("look-ahead in one of several branches")
    demands.append((True, compiled("^" + pattern[at:])))
    return lambda text: all((program.search(text) is not None) == wanted for wanted, program in demands)


def _group_end(pattern: str, at: int) -> int:
    """Where the group that begins at `at` ends."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "[":
            _, at = _class(pattern, at)
            continue
        depth += (pattern[at] == "(") - (pattern[at] == ")")
        at += 2 if pattern[at] == "\\" else 1
        if depth == 0:
            return at
    raise UnsupportedPatternError("a group is not closed")


def _top_level(parts: list[str]) -> list[str]:
    depth, found = 0, []
    for part in parts:
        depth += (part == "(?:") - (part == ")")
        if depth == 0:
            found.append(part)
    return found


def _part(pattern: str, at: int) -> tuple[str, int]:
    """One element of the pattern outside a class, translated; and where it ends."""
    char = pattern[at]
    if char == "\\":
        return _escape(pattern, at, in_class=False)
    if char == "[":
        return _class(pattern, at)
    if char == "(":
        match = _GROUP.match(pattern, at)
        if match is None:
            raise UnsupportedPatternError(f"look-around or flags at character {at}")
        return "(?:", match.end()
    if char == ".":
        return r"[^\n\r\x{2028}\x{2029}]", at + 1
    if match := _QUANTIFIER.match(pattern, at):
        # Lazy and greedy quantifiers match the same strings, and the grammar's engine has only one kind.
        kind = match.group()
        return (kind[:-1] if len(kind) > 1 and kind.endswith("?") else kind), match.end()
    return ("\\" + char if char in "{}]" else char), at + 1


def _escape(pattern: str, at: int, *, in_class: bool) -> tuple[str, int]:
    rest = pattern[at + 1 : at + 2]
    if (members := _SETS.get(rest.lower())) is not None:
        if not in_class:
            return (f"[{members}]" if rest.islower() else f"[^{members}]"), at + 2
        if rest.islower():
            return members, at + 2
        return _complement(rest), at + 2
    if rest in _ESCAPES:
        return _ESCAPES[rest], at + 2
    if match := _HEX.match(pattern, at + 1):
        return rf"\x{{{next(group for group in match.groups() if group)}}}", match.end()
    if match := _PROPERTY.match(pattern, at + 1):
        return rf"\{match.group()[0]}{{{match.group(1)}}}", match.end()
    if rest == "c" and pattern[at + 2 : at + 3].isalpha():
        return rf"\x{{{ord(pattern[at + 2]) % 32:x}}}", at + 3
    if in_class and rest == "b":
        return r"\x08", at + 2
    if not rest or rest.isalnum():
        raise UnsupportedPatternError(f"\\{rest} at character {at}")
    return _literal(rest, in_class=in_class), at + 2


def _complement(kind: str) -> str:
    r"""`\D`, `\W` or `\S` as members of a class. The engines' own Unicode sets differ, so it is spelled out."""
    if kind == "D":
        return r"\x{0}-/:-\x{10ffff}"
    if kind == "W":
        return r"\x{0}-/:-@\[-\^`{-\x{10ffff}"
    return (
        r"\x{0}-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
        r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
    )


def _class(pattern: str, at: int) -> tuple[str, int]:
    negated = pattern.startswith("[^", at)
    out: list[str] = []
    at += 2 if negated else 1
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\":
            part, at = _escape(pattern, at, in_class=True)
        elif pattern[at] == "-":
            between = bool(out) and out[-1] not in _SETS.values() and pattern[at + 1 : at + 2] not in ("]", "")
            part, at = ("-" if between else r"\-"), at + 1
        else:
            part, at = _literal(pattern[at], in_class=True), at + 1
        out.append(part)
    if at >= len(pattern):
        raise UnsupportedPatternError("a character class is not closed")
    if not out:
        return (r"[\x{0}-\x{10ffff}]" if negated else r"[^\x{0}-\x{10ffff}]"), at + 1
    return f"[{'^' if negated else ''}{''.join(out)}]", at + 1


def _literal(char: str, *, in_class: bool) -> str:
    if in_class:
        return "\\" + char if char in "\\[]^&~-" else char
    return "\\" + char if char in _SYNTAX else char
