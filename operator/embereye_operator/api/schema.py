"""One description of a resource for three uses: dataclasses, a structural OpenAPI v3 schema, and local validation.

msgspec converts and checks a fleet of 5,000 sensors in 3 ms, what stands here in 210 (1.1 with four sensors). Ours
is kept: it tells everything that is wrong at once, in sentences with a remedy, by the very schema that the API server
gets, and a spec is read once for each change of it.
"""

import copy
import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, ClassVar, Literal, NewType, TypeVar, Union

from embereye.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from embereye_operator.api.json_schema import ValidationError, Validator

T = TypeVar("T")
Manifest = dict[str, Any]
Duration = NewType("Duration", int)  # nanoseconds; in a manifest "50ms", "5s", "7d"
Quantity = NewType("Quantity", str)  # a Kubernetes quantity: "500m", "256Mi", 2

UNITS = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
DURATION = r"^[1-9][0-9]{0,5}(ms|s|m|h)$"
DURATION_OR_OFF = r"^(0s|[1-9][0-9]{0,5}(ms|s|m|h))$"
LONG_DURATION = r"^[1-9][0-9]{0,3}(m|h|d)$"  # CEL's duration() knows no days, so this one carries no CEL bounds
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"


def parse_duration(text: str) -> Duration:
    """`"5s"` in nanoseconds; ValueError where it is not a duration."""
    match = re.fullmatch(r"(0(?=s)|[1-9][0-9]*)(ms|s|m|h|d)", text)
    if not match:
        raise ValueError(f"{text!r} is not a duration such as 50ms, 5s or 7d")
    return Duration(int(match[1]) * UNITS[match[2]])


def format_duration(nanoseconds: int) -> str:
    """Nanoseconds as a manifest says them, in the largest unit that divides them."""
    if not nanoseconds:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if nanoseconds % UNITS[unit] == 0)
    return f"{nanoseconds // UNITS[unit]}{unit}"


@dataclass(frozen=True)
class Rule:
    """One constraint told twice: to the API server in CEL, and here as a predicate over the same raw value."""

    cel: str
    message: str
    holds: Callable[[Any, Any], bool]  # (self, oldSelf); oldSelf only where `transition`
    field_path: str = ""  # relative, for example ".minShards"
    transition: bool = False  # only judged when an existing object changes

    def to_manifest(self) -> Manifest:
        """As `x-kubernetes-validations` wants it."""
        entry = {"rule": self.cel, "message": self.message}
        return entry | ({"fieldPath": self.field_path} if self.field_path else {})


@dataclass(frozen=True)
class Constraint:
    """What a field's type alone does not say."""

    description: str = ""
    minimum: float | None = None  # durations: nanoseconds
    maximum: float | None = None
    pattern: str = ""
    hint: str = ""  # what follows the value in the sentence of a failed pattern: "is not …"
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    list_key: str = ""  # a list of objects that are told apart by this field
    unique: bool = False  # a list of scalars none of which may repeat
    item: "Constraint | None" = None  # of a list's items
    format: str = ""
    long: bool = False  # a duration in minutes, hours or days
    off: bool = False  # a duration that may also be 0s, whatever its minimum
    rules: tuple[Rule, ...] = ()


def described(description: str, *, default: Any = MISSING, **constraints: Any) -> Any:
    """A dataclass field that carries its part of the schema; a `default` that is a type is made on demand."""
    metadata = {"constraint": Constraint(description, **constraints)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Resource:
    """Base of the dataclasses that are part of a resource; `RULES` are judged on the whole object."""

    __slots__ = ()
    RULES: ClassVar[tuple[Rule, ...]] = ()


@cache
def camel(name: str) -> str:
    """`max_items` → `maxItems`."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _fields(cls: type) -> Sequence[tuple["dataclasses.Field[Any]", Any, Constraint]]:
    hints = typing.get_type_hints(cls)
    return [
        (field, hints[field.name], field.metadata.get("constraint", Constraint())) for field in dataclasses.fields(cls)
    ]


def _unwrap(hint: Any) -> Any:
    """The type without `| None`."""
    if typing.get_origin(hint) in {Union, types.UnionType}:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


# --- to OpenAPI -----------------------------------------------------------------------------------------------------


def openapi(hint: Any, constraint: Constraint = Constraint()) -> Manifest:
    """The structural schema of `hint`, narrowed by `constraint`."""
    hint = _unwrap(hint)
    schema = _typed(hint, constraint)
    if constraint.description:
        schema["description"] = constraint.description
    rules = [*constraint.rules, *(_duration_rules(constraint) if hint is Duration else ())]
    if dataclasses.is_dataclass(hint):
        rules += getattr(hint, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = [rule.to_manifest() for rule in rules]
    return schema


def _typed(hint: Any, constraint: Constraint) -> Manifest:  # noqa: PLR0911 -- a table of types
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        return _object(typing.cast("type", hint))
    if origin is tuple:
        return _array(typing.get_args(hint)[0], constraint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entry = openapi(typing.get_args(hint)[1], constraint.item or Constraint())
        return {"type": "object", "additionalProperties": entry} | _present(maxProperties=constraint.max_items)
    if origin is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    if hint is Duration:
        pattern = LONG_DURATION if constraint.long else DURATION_OR_OFF if constraint.off else DURATION
        return {"type": "string", "pattern": pattern, "maxLength": 16}
    if hint is Quantity:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY,
            "maxLength": 32,
        }
    if hint is bool:
        return {"type": "boolean"}
    if hint in {int, float}:
        bounds = _present(minimum=constraint.minimum, maximum=constraint.maximum)
        return {"type": "integer" if hint is int else "number"} | bounds
    if hint is str:
        return {"type": "string"} | _present(
            pattern=constraint.pattern or None,
            format=constraint.format or None,
            minLength=constraint.min_length,
            maxLength=constraint.max_length,
        )
    raise TypeError(f"no schema for {hint!r}")


def _present(**values: Any) -> Manifest:
    return {name: value for name, value in values.items() if value is not None}


def _object(cls: type) -> Manifest:
    properties: Manifest = {}
    required = []
    for field, hint, constraint in _fields(cls):
        name = camel(field.name)
        properties[name] = openapi(hint, constraint)
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(name)
        elif (default := _default(field, hint, properties[name])) is not None:
            properties[name]["default"] = default
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _default(field: "dataclasses.Field[Any]", hint: Any, schema: Manifest) -> Any:
    hint = _unwrap(hint)
    if dataclasses.is_dataclass(hint):
        # Written out: the API server judges rules on a default as it stands, without the defaults inside it.
        return with_defaults(schema, {}) if field.default_factory is not MISSING else None
    if field.default is MISSING or field.default in (None, (), ""):
        return None
    return to_manifest(field.default, hint)


def _array(item: Any, constraint: Constraint) -> Manifest:
    array: Manifest = {"type": "array", "items": openapi(item, constraint.item or Constraint())}
    array |= _present(minItems=constraint.min_items, maxItems=constraint.max_items)
    if constraint.list_key:
        array |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [constraint.list_key]}
    else:
        array["x-kubernetes-list-type"] = "set" if constraint.unique else "atomic"
    return array


def _duration_rules(constraint: Constraint) -> Iterator[Rule]:
    """Bounds of a duration: OpenAPI cannot compare strings, CEL can."""
    if constraint.long:
        return
    low, high = constraint.minimum, constraint.maximum
    if low is not None and high is not None:
        low_text, high_text = format_duration(int(low)), format_duration(int(high))
        within = f"duration(self) >= duration('{low_text}') && duration(self) <= duration('{high_text}')"
        yield Rule(
            f"self == '0s' || ({within})" if constraint.off else within,
            f"must be {'0s, or ' if constraint.off else ''}between {low_text} and {high_text}",
            lambda value, _: (constraint.off and value == "0s") or low <= parse_duration(value) <= high,
        )


# --- local validation -----------------------------------------------------------------------------------------------


def with_defaults(schema: Mapping[str, Any], value: Any) -> Any:
    """A copy of `value` with defaults filled in and nulls dropped, as the API server does."""
    if isinstance(value, Mapping) and "properties" in schema:
        properties = schema["properties"]
        out = {name: entry for name, entry in value.items() if entry is not None or name not in properties}
        for name, inner in properties.items():
            if name not in out and "default" in inner:
                out[name] = copy.deepcopy(inner["default"])
            if name in out:
                out[name] = with_defaults(inner, out[name])
        return out
    if isinstance(value, Mapping) and "additionalProperties" in schema:
        return {name: with_defaults(schema["additionalProperties"], entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str) and "items" in schema:
        return [with_defaults(schema["items"], entry) for entry in value]
    return copy.deepcopy(value)


@cache
def schema_of(cls: type) -> Manifest:
    """`openapi(cls)`, made once: not to be changed."""
    return openapi(cls)


@cache
def _validator(cls: type, strict: bool) -> Validator:
    return Validator(_json_schema(schema_of(cls), strict=strict))


def problems(cls: type, value: Any, old: Any = None, *, path: str = "spec", strict: bool = True) -> list[str]:
    """What is wrong with `value` as a `cls`: sentences that name the field; `value` has its defaults already.

    `old` is the value before a change, for rules about changes. `strict` refuses fields that the schema does not know,
    which the API server drops instead.
    """
    errors = sorted(
        _validator(cls, strict).iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path]
    )
    found = [_sentence(error, cls, path) for error in errors]
    found += _duplicates(cls, value, path)
    # The API server judges rules only on what is otherwise valid; a predicate may rely on it as well.
    return found or list(_broken_rules(cls, Constraint(), value, old, path))


def _json_schema(schema: Mapping[str, Any], *, strict: bool) -> Manifest:
    out: Manifest = {}
    for name, entry in schema.items():
        if name.startswith("x-kubernetes") or name in {"default", "description", "format"}:
            continue
        if name == "properties":
            out[name] = {field: _json_schema(inner, strict=strict) for field, inner in entry.items()}
        elif name in {"items", "additionalProperties"}:
            out[name] = _json_schema(entry, strict=strict)
        elif name == "pattern":
            # Python's $ also matches before a last newline; Go's, which the API server uses, does not.
            out[name] = re.sub(r"\$$", r"\\Z", entry)
        else:
            out[name] = entry
    if strict and "properties" in out:
        out["additionalProperties"] = False
    return out


def shown(instance: Any, where: str = "") -> str:
    """`instance`, the value at `where`, as far as it is told."""
    value = json.dumps(instance, ensure_ascii=False, default=str)
    if where.endswith((".source", ".streams.detect", ".streams.record")) or '"source"' in value or '"streams"' in value:
        # A camera's password may stand anywhere in its address, and a status is read by more people than the spec.
        value = re.sub(r'(://)(?:[^"\\]|\\.)*', r"\1…", value)
    return value if len(value) <= 80 else value[:79] + "…"


def _sentence(error: ValidationError, cls: type, root: str) -> str:  # noqa: PLR0911 -- a table of rules
    where = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    instance: Any = error.instance
    value = shown(instance, where)
    limit: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "additionalProperties":
            known = sorted(schema["properties"])
            unknown = sorted(map(str, set(instance) - set(known)))
            return f"{where}.{unknown[0]}: there is no such field; known here: {', '.join(known)}"
        case "required":
            missing = error.message.split("'")[1]  # there is an error for each, which has its name nowhere else
            return f"{where}.{missing}: is required"
        case "enum":
            return f"{where}: {value} is not one of {', '.join(limit)}"
        case "pattern":
            hint = _constraint_at(cls, list(error.absolute_path)).hint
            return f"{where}: {value} {hint or f'does not match {limit}'}"
        case "minimum":
            return f"{where}: {value} is less than {limit}"
        case "maximum":
            return f"{where}: {value} is more than {limit}"
        case "maxLength":
            return f"{where}: {value} is longer than {limit} characters"
        case "minLength":
            return f"{where}: {value} is shorter than {limit} characters"
        case "maxItems" | "maxProperties":
            return f"{where}: {len(instance)} entries are more than {limit}"
        case "minItems":
            return f"{where}: {len(instance)} entries are fewer than {limit}"
        case "type":
            article = "an" if limit in {"integer", "object", "array"} else "a"
            return f"{where}: {value} is not {article} {limit}"
        case _:
            return f"{where}: {error.message}"


def _constraint_at(cls: type, path: list[str | int]) -> Constraint:
    """The constraint of the field that `path` leads to; of a duration or a quantity, one that explains it."""
    hint: Any = cls
    constraint = Constraint()
    for part in path:
        hint = _unwrap(hint)
        if dataclasses.is_dataclass(hint):
            found = next((entry for entry in _fields(typing.cast("type", hint)) if camel(entry[0].name) == part), None)
            if not found:
                return Constraint()
            _, hint, constraint = found
        else:
            hint, constraint = typing.get_args(hint)[0 if isinstance(part, int) else 1], constraint.item or Constraint()
    hint = _unwrap(hint)
    if hint is Duration:
        example = "30m, 12h or 7d" if constraint.long else "0s, 5s or 2m" if constraint.off else "50ms, 5s or 2m"
        return dataclasses.replace(constraint, hint=f"is not a duration such as {example}")
    if hint is Quantity:
        return dataclasses.replace(constraint, hint="is not a quantity such as 500m, 2 or 256Mi")
    return constraint


def _walk(hint: Any, constraint: Constraint, value: Any, old: Any, path: str) -> Iterator[tuple[Any, ...]]:
    """Every (type, constraint, value, old value, path) below and including this one."""
    hint = _unwrap(hint)
    yield hint, constraint, value, old, path
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        for field, inner, inner_constraint in _fields(typing.cast("type", hint)):
            name = camel(field.name)
            if name in value:
                before = old.get(name) if isinstance(old, Mapping) else None
                yield from _walk(inner, inner_constraint, value[name], before, f"{path}.{name}")
    elif typing.get_origin(hint) is tuple and isinstance(value, list):
        item = typing.get_args(hint)[0]
        for number, entry in enumerate(value):
            yield from _walk(item, constraint.item or Constraint(), entry, None, f"{path}[{number}]")


def _duplicates(cls: type, value: Any, path: str) -> list[str]:
    found = []
    for _, constraint, entries, _, where in _walk(cls, Constraint(), value, None, path):
        if not isinstance(entries, list) or not (constraint.list_key or constraint.unique):
            continue
        seen: set[str] = set()
        for number, entry in enumerate(entries):
            key = entry.get(constraint.list_key) if constraint.list_key and isinstance(entry, Mapping) else entry
            if not isinstance(key, str):
                continue
            if key in seen:
                name = f".{constraint.list_key}" if constraint.list_key else ""
                found.append(f"{where}[{number}]{name}: {json.dumps(key, ensure_ascii=False)} is there twice")
            seen.add(key)
    return found


def _broken_rules(cls: type, root: Constraint, value: Any, old: Any, path: str) -> Iterator[str]:
    for hint, constraint, entry, before, where in _walk(cls, root, value, old, path):
        rules = [*constraint.rules, *(_duration_rules(constraint) if hint is Duration else ())]
        if dataclasses.is_dataclass(hint):
            rules += getattr(hint, "RULES", ())
        for rule in rules:
            if (before is not None or not rule.transition) and not rule.holds(entry, before):
                told = "" if isinstance(entry, Mapping) else f"{json.dumps(entry, ensure_ascii=False)} "
                yield f"{where}{rule.field_path}: {told}{rule.message}"


@cache
def _made(hint: Any) -> Any:
    """The dataclass `hint` with nothing but defaults; None where that cannot be."""
    if not dataclasses.is_dataclass(hint) or any(
        field.default is MISSING and field.default_factory is MISSING
        for field, _, _ in _fields(typing.cast("type", hint))
    ):
        return None
    return typing.cast("type", hint)()


# --- values ---------------------------------------------------------------------------------------------------------


def from_manifest(hint: Any, value: Any) -> Any:
    """`value`, valid and with its defaults, as the dataclass `hint`; fields that the dataclass lacks are left out."""
    hint = _unwrap(hint)
    if dataclasses.is_dataclass(hint):
        known = {}
        for field, inner, _ in _fields(typing.cast("type", hint)):
            if value.get(camel(field.name)) is not None:
                entry, default = from_manifest(inner, value[camel(field.name)]), _made(_unwrap(inner))
                # Most of a fleet is as it is by default: one of each is enough for all fleets.
                known[field.name] = default if entry == default else entry
        return typing.cast("type", hint)(**known)
    origin = typing.get_origin(hint)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        return tuple(from_manifest(item, entry) for entry in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = typing.get_args(hint)[1]
        return {name: from_manifest(inner, entry) for name, entry in value.items()}
    if hint is Duration:
        return parse_duration(value)
    if hint is Quantity:
        return Quantity(str(value))
    return hint(value) if hint in {int, float} else value


def to_manifest(value: Any, hint: Any = None) -> Any:
    """The inverse of `from_manifest`; what is None is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            camel(field.name): to_manifest(entry, inner)
            for field, inner, _ in _fields(type(value))
            if (entry := getattr(value, field.name)) is not None
        }
    if isinstance(value, tuple | list):
        item = typing.get_args(_unwrap(hint))[0] if hint is not None else None
        return [to_manifest(entry, item) for entry in value]
    if isinstance(value, Mapping):
        return {name: to_manifest(entry) for name, entry in value.items()}
    return format_duration(value) if hint is not None and _unwrap(hint) is Duration else value
