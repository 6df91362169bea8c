"""Control strings that every tool format shares: they open and close thoughts and tool results."""

THINK_BEGIN = "<think>"
THINK_END = "</think>"
