"""One description of a resource for three uses: dataclasses, a structural OpenAPI v3 schema, and local validation.

A field is declared once with `described`: its type, text, default and limits. `openapi` derives the schema for the
CustomResourceDefinition from the dataclass. `with_defaults` and `problems` fill in and check a manifest by that schema
as the API server does, and `from_manifest` converts a valid one. A rule has two forms, CEL for the server and a
predicate for here.

This validation takes 210 ms for a fleet of 5,000 sensors, msgspec 3 ms (1.1 ms with four sensors). But it reports all
errors at once, as sentences with a remedy, by the same schema that the API server gets; and a spec is parsed only once
per change.
"""

import copy
import dataclasses
import inspect
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


def manifest(api_version: str, kind: str, metadata: Manifest, spec: Manifest) -> Manifest:
    """Return the manifest of an object that has metadata and a spec."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def parse_duration(text: str) -> Duration:
    """Convert `"5s"` to nanoseconds; ValueError if it is no duration."""
    match = re.fullmatch(r"(0(?=s)|[1-9][0-9]*)(ms|s|m|h|d)", text)
    if not match:
        raise ValueError(f"{text!r} is not a duration such as 50ms, 5s or 7d")
    return Duration(int(match[1]) * UNITS[match[2]])


def format_duration(nanoseconds: int) -> str:
    """Format nanoseconds as in a manifest, in the largest unit that divides them."""
    if not nanoseconds:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if nanoseconds % UNITS[unit] == 0)
    return f"{nanoseconds // UNITS[unit]}{unit}"


@dataclass(frozen=True)
class Rule:
    """A constraint in two forms: in CEL for the API server, and as a predicate over the same raw value."""

    cel: str
    message: str
    is_met: Callable[[Any, Any], bool]  # (self, oldSelf); oldSelf only if `transition`
    field_path: str = ""  # relative, for example ".minShards"
    transition: bool = False  # only checked when an existing object changes

    def to_manifest(self) -> Manifest:
        """Return the rule in the form of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        return entry | ({"fieldPath": self.field_path} if self.field_path else {})


@dataclass(frozen=True)
class Constraint:
    """The constraints of a field in addition to its type."""

    description: str = ""
    between: tuple[float | None, float | None] = None, None  # least and most; durations: nanoseconds
    pattern: str = ""
    hint: str = ""  # text after the value in the error of a failed pattern: "is not …"
    advice: Callable[[Any], str] | None = None  # from a wrong value to the text after the hint: ". Did you mean …?"
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    list_key: str = ""  # the field that identifies the objects of a list
    unique: bool = False  # a list of scalars without repetitions
    item: "Constraint | None" = None  # constraint of a list's items
    format: str = ""
    key: str = ""  # the field's name in manifests, if it differs from the dataclass's
    long: bool = False  # a duration in minutes, hours or days
    off: bool = False  # a duration that may also be 0s, below its minimum
    rules: tuple[Rule, ...] = ()


def described(description: str, *, default: Any = MISSING, **constraints: Any) -> Any:
    """Return a dataclass field with its part of the schema; a `default` that is a type is a factory."""
    metadata = {"constraint": Constraint(description, **constraints)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@typing.dataclass_transform(frozen_default=True)
class _Described(type):
    """Makes every part of a resource a frozen dataclass with slots."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """Make the class; `dataclass` makes it again, with slots."""
        made: Any = super().__new__(cls, name, bases, namespace)
        return made if "__slots__" in namespace else dataclass(frozen=True, slots=True)(made)


class Resource(metaclass=_Described):
    """The base class of all parts of a resource, which are dataclasses; `RULES` are checked on the whole object."""

    __slots__ = ()
    RULES: ClassVar[tuple[Rule, ...]] = ()


@cache
def camel(name: str) -> str:
    """Convert `max_items` to `maxItems`."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def _key(field: "dataclasses.Field[Any]", constraint: Constraint) -> str:
    """Return the field's name in manifests."""
    return constraint.key or camel(field.name)


@cache
def _fields(cls: type) -> Sequence[tuple["dataclasses.Field[Any]", Any, Constraint]]:
    """Return the fields with their types and constraints: those of the class itself before inherited ones."""
    hints, declared = typing.get_type_hints(cls), inspect.get_annotations(cls)
    ordered = sorted(dataclasses.fields(cls), key=lambda field: field.name not in declared)
    return [(field, hints[field.name], field.metadata.get("constraint", Constraint())) for field in ordered]


def _unwrap(hint: Any) -> Any:
    """Return the type without `| None`."""
    if typing.get_origin(hint) in {Union, types.UnionType}:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def openapi(hint: Any, constraint: Constraint = Constraint()) -> Manifest:
    """Return the structural schema of `hint`, narrowed by `constraint`."""
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
        low, high = constraint.between
        bounds = _present(minimum=low, maximum=high)
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
        name = _key(field, constraint)
        properties[name] = openapi(hint, constraint)
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(name)
        elif (default := _default(field, hint, properties[name])) is not None:
            properties[name]["default"] = default
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _default(field: "dataclasses.Field[Any]", hint: Any, schema: Manifest) -> Any:
    hint = _unwrap(hint)
    if dataclasses.is_dataclass(hint):
        # Written out: the API server checks rules on a default as written, without the defaults inside it.
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
    """Yield the bounds of a duration as rules: CEL can compare durations, OpenAPI cannot."""
    if constraint.long:
        return
    low, high = constraint.between
    if low is not None and high is not None:
        low_text, high_text = format_duration(int(low)), format_duration(int(high))
        within = f"duration(self) >= duration('{low_text}') && duration(self) <= duration('{high_text}')"
        yield Rule(
            f"self == '0s' || ({within})" if constraint.off else within,
            f"must be {'0s, or ' if constraint.off else ''}between {low_text} and {high_text}",
            lambda value, _: (constraint.off and value == "0s") or low <= parse_duration(value) <= high,
        )


def with_defaults(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a copy of `value` with defaults filled in and nulls removed, as the API server does."""
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
    """Return `openapi(cls)`, cached: do not change it."""
    return openapi(cls)


@cache
def _validator(cls: type, strict: bool) -> Validator:
    return Validator(_json_schema(schema_of(cls), strict=strict))


def problems(cls: type, value: Any, old: Any = None, *, path: str = "spec", strict: bool = True) -> list[str]:
    """Validate `value`, with defaults, as a `cls`; return sentences with the field and the problem.

    `old` is the value before a change, for rules about changes. `strict` rejects unknown fields, which the API server
    would remove.
    """
    errors = sorted(
        _validator(cls, strict).iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path]
    )
    sentences = [_sentence(error, cls, path) for error in errors]
    sentences += _duplicates(cls, value, path)
    # As on the API server, rules are checked only on otherwise valid values, which their predicates rely on.
    return sentences or list(_broken_rules(cls, Constraint(), value, old, path))


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
    """Return `instance`, the value at `where`, as JSON, shortened and without passwords."""
    value = json.dumps(instance, ensure_ascii=False, default=str)
    if where.endswith((".source", ".streams.detect", ".streams.record")) or '"source"' in value or '"streams"' in value:
        # A camera's password may be anywhere in its address, and more people read a status than the spec.
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
            missing = error.message.split("'")[1]  # each missing field has an error, with its name only in the message
            return f"{where}.{missing}: is required"
        case "enum":
            return f"{where}: {value} is not one of {', '.join(limit)}"
        case "pattern":
            constraint = _constraint_at(cls, list(error.absolute_path))
            return f"{where}: {value} {constraint.hint or f'does not match {limit}'}{_advice(constraint, instance)}"
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
            return f"{where}: {value} {_wrong_type(cls, list(error.absolute_path), instance, limit)}"
        case _:
            return f"{where}: {error.message}"


def _wrong_type(cls: type, path: list[str | int], instance: Any, wanted: str) -> str:
    """Return the end of the sentence about `instance`, the value at `path`, which is not of the type `wanted`."""
    if advice := _advice(_constraint_at(cls, path), instance):
        return advice.removeprefix(": ").removeprefix("it ")
    if wanted == "string" and isinstance(instance, int | float) and not isinstance(instance, bool):
        return f'is a number, not text: put it in quotes: "{instance}"'
    return f"is not {'an' if wanted in {'integer', 'object', 'array'} else 'a'} {wanted}"


def _advice(constraint: Constraint, instance: Any) -> str:
    return constraint.advice(instance) if constraint.advice else ""


def _constraint_at(cls: type, path: list[str | int]) -> Constraint:
    """Return the constraint of the field at `path`; for a duration or a quantity, one with a helpful hint."""
    hint: Any = cls
    constraint = Constraint()
    for part in path:
        hint = _unwrap(hint)
        if dataclasses.is_dataclass(hint):
            match = next(
                (entry for entry in _fields(typing.cast("type", hint)) if _key(entry[0], entry[2]) == part), None
            )
            if not match:
                return Constraint()
            _, hint, constraint = match
        else:
            hint, constraint = typing.get_args(hint)[0 if isinstance(part, int) else 1], constraint.item or Constraint()
    hint = _unwrap(hint)
    if hint is Duration:
        example = "30m, 12h or 7d" if constraint.long else "0s, 5s or 2m" if constraint.off else "50ms, 5s or 2m"
        return dataclasses.replace(constraint, hint=f"is not a duration such as {example}", advice=_missing_unit)
    if hint is Quantity:
        return dataclasses.replace(constraint, hint="is not a quantity such as 500m, 2 or 256Mi")
    return constraint


def _missing_unit(value: Any) -> str:
    """Return what to write for a duration without a unit; empty if `value` is not a number."""
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", str(value)):
        return ""
    return f": it needs a unit: {value}s for seconds"


def _walk(hint: Any, constraint: Constraint, value: Any, old: Any, path: str) -> Iterator[tuple[Any, ...]]:
    """Yield (type, constraint, value, old value, path) of this value and of all values below it."""
    hint = _unwrap(hint)
    yield hint, constraint, value, old, path
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        for field, inner, inner_constraint in _fields(typing.cast("type", hint)):
            name = _key(field, inner_constraint)
            if name in value:
                before = old.get(name) if isinstance(old, Mapping) else None
                yield from _walk(inner, inner_constraint, value[name], before, f"{path}.{name}")
    elif typing.get_origin(hint) is tuple and isinstance(value, list):
        item = typing.get_args(hint)[0]
        for number, entry in enumerate(value):
            yield from _walk(item, constraint.item or Constraint(), entry, None, f"{path}[{number}]")


def _duplicates(cls: type, value: Any, path: str) -> list[str]:
    sentences = []
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
                sentences.append(f"{where}[{number}]{name}: {json.dumps(key, ensure_ascii=False)} is repeated")
            seen.add(key)
    return sentences


def _broken_rules(cls: type, root: Constraint, value: Any, old: Any, path: str) -> Iterator[str]:
    for hint, constraint, entry, before, where in _walk(cls, root, value, old, path):
        rules = [*constraint.rules, *(_duration_rules(constraint) if hint is Duration else ())]
        if dataclasses.is_dataclass(hint):
            rules += getattr(hint, "RULES", ())
        for rule in rules:
            if (before is not None or not rule.transition) and not rule.is_met(entry, before):
                shown_value = "" if isinstance(entry, Mapping) else f"{json.dumps(entry, ensure_ascii=False)} "
                yield f"{where}{rule.field_path}: {shown_value}{rule.message}"


@cache
def _default_instance(hint: Any) -> Any:
    """Return the dataclass `hint` with only defaults; None if it has required fields."""
    if not dataclasses.is_dataclass(hint) or any(
        field.default is MISSING and field.default_factory is MISSING
        for field, _, _ in _fields(typing.cast("type", hint))
    ):
        return None
    return typing.cast("type", hint)()


def from_manifest(hint: Any, value: Any) -> Any:
    """Convert `value`, valid and with defaults, to the dataclass `hint`; fields that it lacks are ignored."""
    hint = _unwrap(hint)
    if dataclasses.is_dataclass(hint):
        known = {}
        for field, inner, constraint in _fields(typing.cast("type", hint)):
            if (raw := value.get(_key(field, constraint))) is not None:
                entry, default = from_manifest(inner, raw), _default_instance(_unwrap(inner))
                # Most parts of a fleet have their defaults: all fleets share one instance.
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
    """Convert a value to its manifest, the inverse of `from_manifest`; None is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            _key(field, constraint): to_manifest(entry, inner)
            for field, inner, constraint in _fields(type(value))
            if (entry := getattr(value, field.name)) is not None
        }
    if isinstance(value, tuple | list):
        item = typing.get_args(_unwrap(hint))[0] if hint is not None else None
        return [to_manifest(entry, item) for entry in value]
    if isinstance(value, Mapping):
        return {name: to_manifest(entry) for name, entry in value.items()}
    return format_duration(value) if hint is not None and _unwrap(hint) is Duration else value
