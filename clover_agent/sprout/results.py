"""Tool results and the answers to them: what a tool might send back, and a plain sentence with every value of it.

Knows nothing of conversations.
"""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from clover_agent.sprout.corpus import Call
from clover_agent.sprout.values import ValueMaker, snake

UNITS: Mapping[str, str] = {
    "c": "°C", "km": "km", "kg": "kg", "usd": "USD", "eur": "EUR", "percent": "%", "minutes": "minutes", "ms": "ms",
    "seconds": "seconds", "hours": "hours", "days": "days", "m": "m", "kmh": "km/h", "f": "°F",
}  # fmt: skip
WORDS: Mapping[str, str] = {
    "sky": "sky", "status": "status", "city": "place", "name": "person", "email": "email", "title": "title",
    "url": "url", "time": "time", "date": "date", "location": "place", "summary": "sentence", "headline": "title",
    "path": "path",
    "translation": "sentence", "definition": "sentence", "message": "sentence", "source": "company",
    "timezone": "place", "id": "code", "reference": "code", "confirmation": "code", "note_id": "code",
    "order_id": "code",
    "event_id": "code", "task_id": "code", "message_id": "code", "commit_id": "nonce", "currency": "currency",
    "symbol": "symbol",
    "song": "song", "channel": "word_noun", "flight": "code", "unit": "unit", "level": "level", "owner": "person",
    "category": "phrase", "label": "phrase", "type": "phrase", "state": "status", "country": "country", "file": "path",
}  # fmt: skip
NUMBERS: Mapping[str, tuple[int, int]] = {
    "temperature_c": (-20, 40), "humidity_percent": (5, 100), "high_c": (0, 40), "low_c": (-20, 20),
    "result": (0, 99999), "price_usd": (1, 3000), "change_percent": (-9, 9), "distance_km": (1, 9000),
    "duration_minutes": (1, 600),
    "rate": (0, 200), "amount": (1, 99999), "count": (0, 500), "total": (1, 9999), "score": (0, 100), "rating": (1, 5),
    "minutes": (1, 120), "replacements": (1, 20), "matches": (0, 90), "bytes_written": (10, 9000), "rows": (0, 900),
    "status_code": (200, 503), "volume": (0, 100), "value": (0, 9999), "year": (1900, 2030), "population": (100, 99999),
    "speed_kmh": (1, 300), "weight_kg": (1, 200), "size": (1, 999), "events": (0, 9), "average": (0, 500),
}  # fmt: skip
ERRORS = ("not found", "permission denied", "invalid request", "timeout", "no connection", "unknown {noun}")


class ResultMaker:
    """Draws a result of a call and the answer to it."""

    def __init__(self, rng: random.Random, *, held_out: bool = False) -> None:
        self.rng = rng
        self._values = ValueMaker(rng, held_out=held_out)

    def draw(self, call: Call, keys: Sequence[str]) -> tuple[str, str]:
        """(result text, answer). `keys` are what results of this tool hold; others are drawn where there are none."""
        roll = self.rng.random()
        if roll < 0.06:
            error = self.rng.choice(ERRORS).format(noun=self._values.text("word_noun"))
            return json.dumps({"error": error}), f"That did not work: {error}."
        if roll < 0.18:
            text = self._values.text(self.rng.choice(("sentence", "topic", "phrase", "code", "person", "path")))
            return text, f"The result is: {text}"
        if roll < 0.27:
            names = [self._values.text(self.rng.choice(("thing", "person", "path", "place"))) for _ in range(3)]
            names = names[: self.rng.randint(1, 3)]
            return json.dumps(names, ensure_ascii=False), f"The results are: {listing(names)}."
        result = self._members(call, keys)
        return json.dumps(result, ensure_ascii=False), sentence(result)

    def _members(self, call: Call, keys: Sequence[str]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in call.arguments.items():
            if self.rng.random() < 0.25 and isinstance(value, str | int | float) and len(str(value)) < 30:
                result[name] = value
        pool = list(keys) if keys and self.rng.random() < 0.6 else self.rng.sample([*WORDS, *NUMBERS], 4)
        for key in pool[: self.rng.randint(1, 3)]:
            result[key] = self._value(key)
        return result

    def _value(self, key: str) -> Any:
        if key in NUMBERS:
            low, high = NUMBERS[key]
            whole = self.rng.randint(low, high)
            return round(whole + self.rng.random(), 1) if self.rng.random() < 0.25 else whole
        if key == "sky":
            return self.rng.choice(("clear", "cloudy", "sunny", "rainy", "foggy", "windy", "snow", "overcast"))
        return self._values.text(WORDS.get(key, "phrase"))


def sentence(result: Mapping[str, Any]) -> str:
    """`{"temperature_c": 22, "sky": "clear"}` -> "The temperature is 22 °C and the sky is clear."."""
    clauses = [_clause(key, value) for key, value in result.items() if value not in ("", None)]
    text = listing(clauses) or "done"
    return text[:1].upper() + text[1:] + "."


def listing(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def _clause(key: str, value: Any) -> str:
    words = snake(key).split("_")
    unit = UNITS.get(words[-1]) if len(words) > 1 else None
    label = " ".join(words[:-1] if unit else words)
    said = str(value).lower() if isinstance(value, bool) else str(value)
    return f"the {label} is {said}{f' {unit}' if unit else ''}"
