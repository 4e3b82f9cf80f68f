"""JSON Schema of the files of a run, made of the classes that write them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from p2pfl.results.comparisons.outcomes import SweepFile
from p2pfl.results.content import PeerSummary, Summary
from p2pfl.results.notices.kinds import kinds
from p2pfl.results.provenance import Provenance
from p2pfl.results.records import Record

SCHEMA_FILES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "summary.json": (Summary, PeerSummary),
    "provenance.json": (Provenance,),
    "metrics.jsonl": (Record,),
    "events.jsonl": tuple(kinds().values()),
    "sweep.json": (SweepFile,),
}
"""Classes of the objects in each file; of JSON lines, those of a line."""

SCHEMA_DESCRIPTION = (
    "metrics.jsonl and events.jsonl have one object a line. NaN and infinities are null. Later releases may add fields "
    "and kinds of events without another version of the schema."
)


def json_schema() -> dict[str, Any]:
    """Return the schema of all files.

    Examples
    --------
    >>> types = json_schema()["$defs"]
    >>> types["metrics.jsonl"]
    {'$ref': '#/$defs/Record'}
    >>> types["Record"]["properties"]["received"]
    {'type': 'integer', 'description': 'Models used in this round.'}
    """
    types = [kind for each in SCHEMA_FILES.values() for kind in each]
    _, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    kinds = {kind.__name__: kind for kind in classes(types)}
    defs: dict[str, Any] = {}
    for file, each in SCHEMA_FILES.items():
        refs = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in each]
        defs[file] = refs[0] if len(refs) == 1 else {"anyOf": refs}
    for name in sorted(components):
        defs[name] = _add_descriptions(_nullable(components[name]), kinds[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Files of a p2pfl run",
        "description": SCHEMA_DESCRIPTION,
        "$defs": defs,
    }


def classes(types: list[type[msgspec.Struct]]) -> list[type]:
    """Return the classes and those of their fields, each once, in the order in which they occur."""
    kinds: list[type] = []
    pending = [*msgspec.inspect.multi_type_info(types)]
    while pending:
        info: Any = pending.pop(0)
        if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
            if info.cls not in kinds:
                kinds.append(info.cls)
                pending = [*(field.type for field in info.fields), *pending]
            continue
        parts = [part for key in ("types", "item_types") for part in getattr(info, key, ())]
        parts += [getattr(info, key, None) for key in ("item_type", "key_type", "value_type")]
        pending = [*filter(None, parts), *pending]
    return kinds


def attributes(kind: type) -> dict[str, str]:
    """Return the description of each field of a class and its bases.

    Examples
    --------
    >>> attributes(Provenance)["began"]
    'Start, in UTC.'
    """
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("p2pfl."):
            texts |= parse_attributes(each.__doc__ or "")
    return texts


def parse_attributes(docstring: str) -> dict[str, str]:
    """Return the text of each attribute of a NumPy docstring; attributes described together share it."""
    body = inspect.cleandoc(docstring).partition("----------\n")[2]
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in body.splitlines():
        if re.match(r"\w", line):
            names = [name.strip() for name in line.split(",")]
            texts |= dict.fromkeys(names, "")
        elif line.strip():
            for name in names:
                text = re.sub(r"``", "`", line.strip())
                texts[name] = f"{texts[name]} {text}".strip()
    return texts


def summary_of(kind: type) -> str:
    """Return the first line of a docstring."""
    return re.sub(r"``", "`", inspect.cleandoc(kind.__doc__ or "").partition("\n")[0])


def _add_descriptions(schema: dict[str, Any], kind: type) -> dict[str, Any]:
    about = attributes(kind)
    fields = {
        name: value | ({"description": about[name]} if about.get(name) else {})
        for name, value in schema["properties"].items()
    }
    return schema | {"description": summary_of(kind), "properties": fields}


def _nullable(schema: Any) -> Any:
    """Return the schema with null wherever a number may be, because JSON has no NaN."""
    if isinstance(schema, list):
        return [_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return {**schema, "type": ["number", "null"]}
    choices = schema.get("anyOf", ())
    if {"type": "number"} in choices and {"type": "null"} in choices:
        rest = [part for part in choices if part not in ({"type": "number"}, {"type": "null"})]
        if not rest:
            return {key: value for key, value in schema.items() if key != "anyOf"} | {"type": ["number", "null"]}
    return {key: _nullable(value) for key, value in schema.items()}
