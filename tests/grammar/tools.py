"""Hand-written tools as agents have them, each with arguments that satisfy it. Keys stand in schema order."""

from typing import Any

from clover_agent.types import Tool


def _tool(name: str, properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": required or [], **more}
    return Tool(name, f"Does {name}.", parameters)


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}

# (tool, arguments that satisfy it)
EXAMPLES: list[tuple[Tool, dict[str, Any]]] = [
    (Tool("list_windows"), {}),
    (_tool("stop", {}), {}),
    (_tool("get_weather", {"city": STRING}, ["city"]), {"city": "São Paulo"}),
    (
        _tool(
            "run_shell",
            {"command": STRING, "timeout_s": {"type": "integer", "minimum": 1, "maximum": 600}},
            ["command"],
        ),
        {"command": "mkdir -p 'a/{b,c}' && echo \"</done>\"\nls", "timeout_s": 30},
    ),
    (
        _tool("read_file", {"path": STRING, "offset": INTEGER, "limit": INTEGER, "tail": BOOLEAN}, ["path"]),
        {"path": "/etc/hosts", "offset": -3, "tail": True},
    ),
    (
        _tool("write_file", {"path": STRING, "content": STRING}, ["path", "content"]),
        {"path": "a.py", "content": "\n\nx\n"},
    ),
    (
        _tool("set_mode", {"mode": {"type": "string", "enum": ["off", "eco", "boost", "eco plus"]}}, ["mode"]),
        {"mode": "eco plus"},
    ),
    (_tool("set_level", {"level": {"enum": [1, 2, 3, "max", None]}}, ["level"]), {"level": "max"}),
    (
        _tool("tag", {"tags": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 5}}, ["tags"]),
        {"tags": ["a", "b c", '"q"']},
    ),
    (
        _tool(
            "move",
            {
                "to": {
                    "type": "object",
                    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                    "required": ["x"],
                }
            },
            ["to"],
        ),
        {"to": {"x": 1.5, "y": -2e-7}},
    ),
    (
        _tool(
            "plan_trip",
            {
                "legs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"from": STRING, "to": STRING, "date": {"type": "string", "format": "date"}},
                        "required": ["from", "to"],
                        "additionalProperties": False,
                    },
                }
            },
            ["legs"],
        ),
        {"legs": [{"from": "Oslo", "to": "Rome", "date": "2024-02-29"}, {"from": "Rome", "to": "Lima"}]},
    ),
    (
        _tool("find", {"by": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "q": STRING}, ["by"]),
        {"by": None, "q": "x"},
    ),
    (
        _tool("rename", {"id": {"type": "string", "pattern": "^[A-Z]{2,4}-\\d+$"}, "to": STRING}, ["id"]),
        {"id": "AB-12"},
    ),
    (
        _tool(
            "invite", {"email": {"type": "string", "format": "email"}, "note": {"type": ["string", "null"]}}, ["email"]
        ),
        {"email": "a.b@example.org", "note": None},
    ),
    (_tool("book", {"at": {"type": "string", "format": "date-time"}}, ["at"]), {"at": "2031-11-30T23:59:59Z"}),
    (_tool("pin", {"code": {"type": "string", "minLength": 4, "maxLength": 4}}, ["code"]), {"code": "12é4"}),
    (
        _tool("set_price", {"price": {"type": "number", "exclusiveMinimum": 0, "maximum": 99.5}}, ["price"]),
        {"price": 12.25},
    ),
    (_tool("repeat", {"times": {"type": "integer", "multipleOf": 5}}, ["times"]), {"times": 15}),
    (
        _tool(
            "add_node",
            {"node": {"$ref": "#/$defs/node"}},
            ["node"],
            **{
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {
                            "name": STRING,
                            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                        },
                        "required": ["name"],
                    }
                }
            },
        ),
        {"node": {"name": "a", "children": [{"name": "b", "children": []}]}},
    ),
    (
        _tool(
            "draw",
            {
                "shape": {
                    "oneOf": [
                        {
                            "type": "object",
                            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                            "required": ["kind", "r"],
                        },
                        {
                            "type": "object",
                            "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                            "required": ["kind", "side"],
                        },
                    ]
                }
            },
            ["shape"],
        ),
        {"shape": {"kind": "square", "side": 3}},
    ),
    (
        _tool("set_env", {"vars": {"type": "object", "additionalProperties": STRING}}, ["vars"]),
        {"vars": {"PATH": "/bin"}},
    ),
    (
        _tool(
            "point", {"xy": {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2}}, ["xy"]
        ),
        {"xy": [1, 2]},
    ),
    (_tool("anything", {"value": {}}, ["value"]), {"value": [1, {"a": None}]}),
    (_tool("log", {"fields": {"type": "object"}}, ["fields"]), {"fields": {"a": {"b": [True]}}}),
    (Tool("free_form", "", {"type": "object"}), {"x": "y", "n": [1]}),
    (
        _tool(
            "merge",
            {"a": {"allOf": [{"type": "object", "properties": {"x": INTEGER}}, {"required": ["x"]}]}, "b": BOOLEAN},
            ["a", "b"],
        ),
        {"a": {"x": 1}, "b": False},
    ),
]

TOOLS = tuple(tool for tool, _ in EXAMPLES)
