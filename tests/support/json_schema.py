"""A validator of JSON Schema that knows the keywords of docs/schema.json and refuses all others."""

import math

NOTES = {"title", "description", "default", "format"}
"""Keywords that constrain nothing here."""


def faults(value, schema, defs, *, place="$"):
    """Return where a value does not conform; what an object has and no property names is a fault, too."""
    unknown = (
        schema.keys()
        - NOTES
        - {
            *(
                "$ref",
                "anyOf",
                "discriminator",
                "enum",
                "type",
                "properties",
                "required",
                "items",
                "additionalProperties",
            ),
        }
    )
    assert not unknown, unknown
    if "$ref" in schema:
        return faults(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, place=place)
    if "anyOf" in schema:
        return _any(value, schema, defs, place)
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{place}: {value!r} is not in {schema['enum']}"]
    if "type" not in schema:
        return []
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, name) for name in names):
        return [f"{place}: {value!r} is not {' or '.join(names)}"]
    if isinstance(value, dict):
        return _object(value, schema, defs, place)
    if isinstance(value, list) and "items" in schema:
        return [
            each for n, item in enumerate(value) for each in faults(item, schema["items"], defs, place=f"{place}[{n}]")
        ]
    return []


def _any(value, schema, defs, place):
    tried = [faults(value, part, defs, place=place) for part in schema["anyOf"]]
    return [] if not all(tried) else min(tried, key=len)


def _object(value, schema, defs, place):
    found = [f"{place}: {key} is missing" for key in schema.get("required", ()) if key not in value]
    named = schema.get("properties")
    rest = schema.get("additionalProperties")
    for key, item in value.items():
        here = f"{place}.{key}"
        if named is not None and key in named:
            found += faults(item, named[key], defs, place=here)
        elif named is not None:
            found.append(f"{here}: no property has this name")
        elif isinstance(rest, dict):
            found += faults(item, rest, defs, place=here)
    return found


def _is(value, name):
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    raise AssertionError(name)
