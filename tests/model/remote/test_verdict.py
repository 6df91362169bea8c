"""The path is a function of what was seen."""

from dataclasses import fields, replace
from itertools import product

from clover_agent.model.remote.verdict import Seen, choose

FINE = Seen(**{field.name: True for field in fields(Seen)})


def test_each_failure_alone() -> None:
    paths = {field.name: choose(replace(FINE, **{field.name: False})).path for field in fields(Seen)}
    assert choose(FINE).path == "cached"
    assert paths == {
        "finite": "refuse",
        "mask_known": "generate",
        "answers": "generate",
        "bidirectional": "generate",
        "causal_prefix": "uncached",
        "nothing_leaks": "uncached",
        "cache_exact": "uncached",
        "can_generate": "cached",
    }


def test_no_path_is_taken_that_what_was_seen_forbids() -> None:
    names = [field.name for field in fields(Seen)]
    for values in product([True, False], repeat=len(names)):
        seen = Seen(**dict(zip(names, values, strict=True)))
        path = choose(seen).path
        denoised = seen.finite and seen.mask_known and seen.answers and seen.bidirectional
        assert (path in ("cached", "uncached")) is denoised
        assert path != "cached" or (seen.causal_prefix and seen.nothing_leaks and seen.cache_exact)
        assert path != "generate" or seen.can_generate
        assert seen.finite or path == "refuse"
