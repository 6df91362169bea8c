"""The small sample of the training data that ships with the package, so that the whole pipeline can be tested.

    python -m clover_agent.sprout.sample --records FILE… --schemas FILE… --out clover_agent/sprout/sample

Only records under CC0, Apache-2.0 and CC BY are taken, and only tools of the record's own corpus or of the schemas
(Apache-2.0) stay in them; `weights/README.md` has the attributions.
"""

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clover_agent.sprout.corpus import read_records

PER_SOURCE: Mapping[str, int] = {"snips": 60, "nlued": 60, "polyai": 20, "sealtools": 20, "tm4": 12}
SCHEMAS = 240


def records_path() -> Path:
    return Path(__file__).parent / "sample" / "records.jsonl.gz"


def schemas_path() -> Path:
    return Path(__file__).parent / "sample" / "schemas.jsonl.gz"


def sample_records(records: Iterable[Mapping[str, Any]], schema_names: frozenset[str]) -> Iterator[dict[str, Any]]:
    """`PER_SOURCE` records of each source, foreign tools taken out."""
    taken: Counter[str] = Counter()
    everything = [record for record in records if record["source"] in PER_SOURCE]
    own = {(r["source"], call["name"]) for r in everything for call in r["calls"] or ()}
    random.Random(0).shuffle(everything)
    for record in everything:
        source = record["source"]
        tools = [
            tool
            for tool in record["tools"]
            if (source, tool["function"]["name"]) in own or tool["function"]["name"] in schema_names
        ]
        if taken[source] < PER_SOURCE[source] and tools and len(json.dumps(record)) < 6000:
            taken[source] += 1
            yield {**record, "tools": tools}


def sample_schemas(schemas: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """`SCHEMAS` of the schemas, evenly spaced in the order of their topics: all of a few topics stay together."""
    ordered = sorted(schemas, key=lambda record: str(record["field"]))
    topics = sorted({str(record["field"]) for record in ordered})
    kept = frozenset(topics[:: max(1, len(ordered) // SCHEMAS)])
    return [record for record in ordered if record["field"] in kept]


def _write(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--records", "--schemas"):
        parser.add_argument(flag, type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    schemas = [record for path in arguments.schemas for record in read_records(path)]
    names = frozenset(record["tool"]["function"]["name"] for record in schemas)
    records = (record for path in arguments.records for record in read_records(path))
    _write(arguments.out / "records.jsonl.gz", sample_records(records, names))
    _write(arguments.out / "schemas.jsonl.gz", sample_schemas(schemas))


if __name__ == "__main__":
    main()
