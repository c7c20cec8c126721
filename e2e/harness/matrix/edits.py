"""Edits of a fleet, one for each field that it has a default for, made from the schema that clusters are given."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEFINITIONS = {"SensorFleet": "sensorfleets.yaml", "CameraFleet": "camerafleets.yaml"}
VERSION = "v1beta1"
MORE = 1.02  # times, of a number: too little to change what is an alarm
# Where devices find their fleet, and what a reading means: who edits those means to cut devices off, or to be alarmed
# by others. They have tests of their own.
ELSEWHERE = {
    "access", "expose", "listen", "shards", "image", "version", "hub", "template", "paused", "flame.digital",
    "converter.bits", "autoscaling.mode", "decoding.hardware", "detection.model", "telemetry.archive",
}  # fmt: skip

Edit = tuple[str, dict[str, Any]]  # the field, as "gas.alarmPpm", and a spec that has it alone


@cache
def edits(kind: str) -> list[Edit]:
    """One for each field of that kind of fleet, with another value than its default."""
    text = (ROOT / "charts" / "embereye" / "files" / "crds" / DEFINITIONS[kind]).read_text()
    definition = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (schema,) = (one["schema"] for one in definition["spec"]["versions"] if one["name"] == VERSION)
    return list(_edits(schema["openAPIV3Schema"]["properties"]["spec"], ()))


def _edits(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Edit]:
    name = ".".join(path)
    if name in ELSEWHERE:
        return
    for field, inner in schema.get("properties", {}).items():
        yield from _edits(inner, (*path, field))
    if "default" in schema and "properties" not in schema:
        value = _other(schema)
        for field in reversed(path):
            value = {field: value}
        yield name, value


def _other(schema: Mapping[str, Any]) -> Any:
    """A value that is allowed, and is not the default."""
    default = schema["default"]
    if "enum" in schema:
        return next(value for value in schema["enum"] if value != default)
    match default:
        case bool():
            return not default
        case int() | float():
            more = default + 1 if schema["type"] == "integer" else round(default * MORE, 6)
            return more if more <= schema.get("maximum", more) else round(default / MORE, 6)
        case list():
            return default[:-1]
        case _:
            digits = "".join(letter for letter in default if letter.isdigit())
            return default.replace(digits, str(int(digits) + 1)) if digits else f"{default}X"


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """`one` with what `other` says besides, or otherwise."""
    found = dict(one)
    for key, value in other.items():
        before = found.get(key)
        found[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found
