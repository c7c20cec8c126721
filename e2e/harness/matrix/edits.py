"""Edits of a fleet: one for each field with a default, derived from the CRD's schema."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEFINITIONS = {"SensorFleet": "sensorfleets.yaml", "CameraFleet": "camerafleets.yaml"}
VERSION = "v1beta1"
MORE = 1.02  # factor on a number: too small to cause or prevent an alarm
# Fields that decide where devices find their fleet, or what a reading means. Editing them cuts devices off or changes
# alarms on purpose, so separate tests cover them.
ELSEWHERE = {
    "access", "expose", "listen", "shards", "image", "version", "hub", "template", "paused", "flame.digital",
    "converter.bits", "autoscaling.mode", "decoding.hardware", "detection.model", "detection.candidate.model",
    "telemetry.archive",
}  # fmt: skip

Edit = tuple[str, dict[str, Any]]  # the field, such as "gas.alarmPpm", and a spec with only this field


@cache
def edits(kind: str) -> list[Edit]:
    """Build an edit for each field of that kind of fleet, with a value other than its default."""
    text = (ROOT / "charts" / "embereye" / "files" / "crds" / DEFINITIONS[kind]).read_text()
    definition = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (schema,) = (version["schema"] for version in definition["spec"]["versions"] if version["name"] == VERSION)
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
    """An allowed value other than the default."""
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


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `changes` into `base`, mapping by mapping."""
    result = dict(base)
    for key, value in changes.items():
        before = result.get(key)
        result[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result
