"""The reference of a fleet's fields, from the model."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.kinds import added_kinds
from embereye_operator.api.schema import openapi
from embereye_operator.api.shared import API_VERSION, API_VERSIONS
from embereye_operator.api.status import FleetStatus

HEADER = f"""# Reference: the fields of a fleet

<!-- Written by `make crds`; change operator/embereye_operator/api instead. -->

All kinds have `apiVersion: {API_VERSIONS[-1]}` or, with the same fields, `{API_VERSION}` ([versions](versions.md));
`kubectl explain sensorfleet.spec` shows them. A duration is a number with a unit: `50ms`, `5s`, `1m`, `2h`, `7d`. The
API server and, for fleets, `embereye up` reject an invalid value with a message that names the field.
"""


def render() -> str:
    """Return the whole page."""
    parts = [HEADER]
    for fleet in FLEET_TYPES.values():
        parts.append(f"## {fleet.resource} (`{fleet.short}`)\n\n{(fleet.spec.__doc__ or '').strip()}\n")
        parts.append(_table("spec", openapi(fleet.spec)))
    parts.append("## Status, of both kinds of fleet\n")
    parts.append(_table("status", openapi(FleetStatus)))
    for kind in added_kinds():
        parts.append(f"## {kind.resource} (`{kind.short}`)\n\n{(kind.spec.__doc__ or '').strip()}\n")
        parts += [_table("spec", openapi(kind.spec)), _table("status", openapi(kind.status))]
    return "\n".join(parts)


def _table(root: str, schema: Mapping[str, Any]) -> str:
    rows = [f"| `{path}` | {value} | {text} |" for path, value, text in _fields(root, schema)]
    return "\n".join(["| field | value | meaning |", "| --- | --- | --- |", *rows, ""])


def _fields(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        inner = field.get("items", field)
        where += "[]" if "items" in field else ""
        yield where, _value(field, required=name in required), _text(field)
        if "properties" in inner:
            yield from _fields(where, inner)


def _value(field: Mapping[str, Any], *, required: bool) -> str:
    inner = field.get("items", field)
    if "enum" in inner:
        kind = ", ".join(f"`{value}`" for value in inner["enum"] if value != "")
    elif "additionalProperties" in inner:
        kind = "map"
    else:
        kind = str(inner.get("type", "quantity"))
    low, high = inner.get("minimum"), inner.get("maximum")
    bounds = (
        f" {low if low is not None else ''}…{high if high is not None else ''}" if (low, high) != (None, None) else ""
    )
    default = field.get("default")
    if required:
        rest = "; required"
    elif default in (None, "", [], {}) or isinstance(default, dict):
        rest = ""
    else:
        rest = f"; default `{default if isinstance(default, str) else json.dumps(default)}`"
    return f"{kind}{bounds}{rest}"


def _text(field: Mapping[str, Any]) -> str:
    rules = [
        f"{rule.get('fieldPath', '').lstrip('.') or 'It'} {rule['message']}."
        for rule in field.get("x-kubernetes-validations", ())
    ]
    return " ".join([str(field.get("description", "")), *rules]).replace("|", "\\|").replace("\n", " ")
