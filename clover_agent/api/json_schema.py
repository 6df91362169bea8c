"""Is a client's JSON Schema one at all? Size and metaschema only; whether a grammar can hold it is not known here."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from clover_agent.errors import InvalidSchema

MAX_SCHEMA_CHARS = 256 * 1024
REMEMBERED = 512


class SchemaChecker:
    """Checks schemas against their metaschema. Agents send the same tools every turn: good ones are remembered."""

    def __init__(self) -> None:
        self._good: OrderedDict[str, None] = OrderedDict()  # requests are checked on several threads
        self._lock = Lock()

    def check(self, schema: Mapping[str, Any], path: str) -> None:
        """Raises `InvalidSchema` naming `path` and the place inside the schema."""
        text = json.dumps(schema, sort_keys=True)
        with self._lock:
            if text in self._good:
                self._good.move_to_end(text)
                return
        if len(text) > MAX_SCHEMA_CHARS:
            raise InvalidSchema(f"{path}: the schema is longer than {MAX_SCHEMA_CHARS} characters.", param=path)
        self._check_metaschema(schema, path)
        with self._lock:
            self._good[text] = None
            if len(self._good) > REMEMBERED:
                self._good.popitem(last=False)

    def check_parameters(self, schema: Mapping[str, Any], path: str) -> None:
        """The same for a tool's parameters, which must describe an object."""
        self.check(schema, path)
        types = schema.get("type", "object")
        if "object" not in ([types] if isinstance(types, str) else types):
            raise InvalidSchema(f'{path}: parameters must be of type "object", not {types!r}.', param=path)

    @staticmethod
    def _check_metaschema(schema: Mapping[str, Any], path: str) -> None:
        if not isinstance(schema.get("$schema", ""), str):
            raise InvalidSchema(f"{path}: $schema must be a string.", param=path)
        try:
            # No formats: a pattern that Python cannot compile may be a good one in the schema's own dialect.
            dialect: Any = validator_for(schema, Draft202012Validator)
            dialect.check_schema(schema, format_checker=FormatChecker(()))
        except SchemaError as error:
            place = "".join(f".{part}" for part in error.absolute_path)
            raise InvalidSchema(f"{path}{place}: not a valid JSON Schema: {error.message[:300]}", param=path) from error
        except RecursionError as error:
            raise InvalidSchema(f"{path}: the schema is nested too deeply.", param=path) from error
