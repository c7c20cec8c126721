"""Change the devices of a fleet in the text of a manifest, and leave all else as it is (pure).

PyYAML gives the lines of each device and field; only these change. So comments, order and style of the file stay.
A new device is written in the style of the device before it. The lists of devices in ConfigMaps, as `camerasFrom` and
`sensorsFrom` name them, are edited in the same way, within their block of text. Texts that YAML readers could take for
numbers or truth values are quoted.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import yaml

PLAIN = re.compile(r"[A-Za-z0-9][\w./@?=&%~+:-]*")
UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]")
LINE_ENDS = re.compile("(?<=[\n\x85\u2028\u2029])")  # as YAML counts lines
KINDS = {"CameraFleet": "cameras", "SensorFleet": "sensors"}
BLOCK_SCALARS = ("|", ">")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, because lists can have thousands of devices


class Action(StrEnum):
    """A kind of change."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


class EditError(ValueError):
    """The change cannot be made; the text says why."""


@dataclass(frozen=True)
class Change:
    """One change of a device."""

    fleet: str  # namespace/cameras/name
    action: Action
    device: str  # id
    fields: Mapping[str, Any]  # as in manifests, without the id; None removes a field
    mqtt: Mapping[str, Any] = field(default_factory=dict)  # fields of the fleet's `spec.mqtt`; None removes one


def edit(text: str, change: Change) -> str:
    """Return the file's text after `change`.

    EditError if it has no such fleet or device, if it has the device to add, or if its form has no place for it.
    """
    for node in _documents(text):
        if fleet_of(_shallow(node)) == change.fleet:
            if change.mqtt:
                changed = "".join(_with_broker(LINE_ENDS.split(text), node, change.mqtt))
                return edit(changed, replace(change, mqtt={}))
            return "".join(_edited(LINE_ENDS.split(text), node, change))
    raise EditError(f"the file has no fleet {change.fleet}")


def edit_list(text: str, name: str, change: Change) -> str:
    """Return the file's text after `change` of a device in the ConfigMap `name`, "namespace/name"; EditError."""
    kind = change.fleet.split("/")[1]
    for node in _documents(text):
        if _config_map_of(_shallow(node)) != name:
            continue
        for _, block in _pairs(_pairs(node)["data"][1]).values():
            if any(device.get("id") == change.device for device in _devices_in(block.value)):
                return _with_list(LINE_ENDS.split(text), block, kind, change)
    raise EditError(f"the file has no ConfigMap {name} with {change.device}")


def _documents(text: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(text, LOADER))
    except yaml.YAMLError as error:
        raise EditError(f"the file is not YAML: {' '.join(str(error).split())[:200]}") from error


def _with_list(lines: list[str], block: yaml.Node, kind: str, change: Change) -> str:
    """Return the file's text with a device in a ConfigMap's block changed."""
    if not isinstance(block, yaml.ScalarNode) or block.style != "|":
        raise EditError(f"the ConfigMap does not have its {kind} in a block after |: change it in the file")
    head = f"spec:\n  {kind}:\n"
    wrapped = head + textwrap.indent(block.value, "    ")
    changed = "".join(_edited(LINE_ENDS.split(wrapped), _documents(wrapped)[0], change)).removeprefix(head)
    first, last = block.start_mark.line + 1, _last_line(block) + 1
    margin = lines[first][: len(lines[first]) - len(lines[first].lstrip(" "))]
    return "".join([*lines[:first], textwrap.indent(textwrap.dedent(changed), margin), *lines[last:]])


def fleet_of(document: Any) -> str:
    """The key of the fleet in a document of a manifest; empty if it is none."""
    if not isinstance(document, Mapping) or document.get("kind") not in KINDS:
        return ""
    metadata = document.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{KINDS[document['kind']]}/{metadata.get('name')}"


@dataclass(frozen=True)
class Declared:
    """A fleet in a manifest."""

    fleet: str
    devices: Sequence[Mapping[str, Any]]  # that the fleet itself lists
    lists: Sequence[str]  # ConfigMaps with more, "namespace/name"
    mqtt: Mapping[str, Any]  # its broker; empty: none


def declared(text: str) -> Iterator[Declared]:
    """Yield each fleet in a manifest that `load_fleets` accepts."""
    for document in yaml.load_all(text, LOADER):
        if key := fleet_of(document):
            namespace, kind, _ = key.split("/")
            spec = document.get("spec") or {}
            names = [each["configMapRef"]["name"] for each in spec.get(f"{kind}From") or []]
            lists = [f"{namespace}/{name}" for name in names]
            yield Declared(key, spec.get(kind) or [], lists, spec.get("mqtt") or {})


def listed(text: str) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Yield the name, "namespace/name", and the devices of each ConfigMap in a manifest."""
    for document in yaml.load_all(text, LOADER):
        if name := _config_map_of(document):
            values = (document.get("data") or {}).values()
            yield name, [device for value in values for device in _devices_in(value)]


def _config_map_of(document: Any) -> str:
    """The name of a ConfigMap, "namespace/name"; empty if the document is none."""
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        return ""
    metadata = document.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _devices_in(value: Any) -> list[Mapping[str, Any]]:
    """The devices in one value of a ConfigMap; none if it is no list of devices."""
    try:
        devices = yaml.load(value, LOADER) if isinstance(value, str) else None
    except yaml.YAMLError:
        return []
    return [each for each in devices if isinstance(each, Mapping)] if isinstance(devices, list) else []


def device_text(device: Mapping[str, Any]) -> str:
    """A device in one line, as in a manifest's list."""
    return _flow(device)


def _shallow(node: yaml.Node | None) -> Mapping[str, Any]:
    """The texts at the top of a document, and those in its metadata."""
    fields: dict[str, Any] = {}
    for key, (_, value) in _pairs(node).items():
        fields[key] = _shallow(value) if key == "metadata" else getattr(value, "value", None)
    return fields


def _pairs(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _edited(lines: list[str], fleet: yaml.Node, change: Change) -> list[str]:
    """Return the file's lines with the device of `fleet` changed."""
    kind = change.fleet.split("/")[1]
    key, spec = _pairs(fleet)["spec"]
    devices = _pairs(spec).get(kind, (None, None))[1]
    if isinstance(devices, yaml.SequenceNode) and devices.flow_style and devices.value:
        raise EditError(f"the file has all {kind} in one pair of brackets: write a line for each, with - before it")
    items = devices.value if isinstance(devices, yaml.SequenceNode) else []
    item = next((each for each in items if _pairs(each)["id"][1].value == change.device), None)
    if change.action is Action.ADD:
        if item is not None:
            raise EditError(f"{change.fleet} has a device {change.device} already")
        return _with_device(lines, (key, spec), kind, change)
    if item is None:
        raise EditError(f"{change.fleet} does not declare {change.device}")
    if change.action is Action.REMOVE:
        if len(items) == 1:
            raise EditError(f"{change.device} is the last device of {change.fleet}: delete the fleet instead")
        return [*lines[: item.start_mark.line], *lines[_last_line(item) + 1 :]]
    return _with_fields(lines, item, change.fields)


def _with_broker(lines: list[str], fleet: yaml.Node, mqtt: Mapping[str, Any]) -> list[str]:
    """Return the file's lines with these fields of the fleet's broker changed."""
    key, spec = _pairs(fleet)["spec"]
    if not isinstance(spec, yaml.MappingNode) or spec.flow_style:
        raise EditError("the file has the fleet's spec in one pair of brackets: write a line for each field")
    pairs = _pairs(spec)
    given = {name: value for name, value in mqtt.items() if value is not None}
    if "mqtt" not in pairs:
        column = spec.value[0][0].start_mark.column
        return [*lines[: key.start_mark.line + 1], f"{' ' * column}mqtt: {_flow(given)}\n",
                *lines[key.start_mark.line + 1 :]]  # fmt: skip
    _, broker = pairs["mqtt"]
    if isinstance(broker, yaml.MappingNode):
        return _with_fields(lines, broker, mqtt)
    return _with_field(lines, pairs["mqtt"], given)


def _with_device(lines: list[str], spec: tuple[yaml.Node, yaml.Node], kind: str, change: Change) -> list[str]:
    """Return the lines with a new device behind the last one."""
    device = {name: value for name, value in {"id": change.device, **change.fields}.items() if value is not None}
    key, devices = _pairs(spec[1]).get(kind, (None, None))
    if isinstance(devices, yaml.SequenceNode) and devices.value:
        last = devices.value[-1]
        column = _dash(lines, last)
        added = [f"- {_flow(device)}"] if last.flow_style else _block(device)
        place = _last_line(last) + 1
    else:
        fields = _pairs(spec[1])
        column = (next(iter(fields.values()))[0].start_mark.column if fields else 2) + 2
        added = _block(device)
        if key is None:
            place = spec[0].start_mark.line + 1
            added = [f"{kind}:", *(f"  {line}" for line in added)]
            column -= 2
        else:
            place = key.start_mark.line + 1
            lines = [*lines[: place - 1], f"{' ' * (column - 2)}{kind}:\n", *lines[place:]]
    before = lines[:place]
    if before and not before[-1].endswith("\n"):
        before[-1] += "\n"
    return [*before, *(f"{' ' * column}{line}\n" for line in added), *lines[place:]]


def _with_fields(lines: list[str], item: yaml.CollectionNode, fields: Mapping[str, Any]) -> list[str]:
    """Return the lines with these fields of a device changed."""
    pairs = _pairs(item)
    if item.flow_style:
        if item.start_mark.line != item.end_mark.line:
            raise EditError("the device spans several lines within { }: change it in the file")
        line = lines[item.start_mark.line]
        texts = {name: line[value.start_mark.column : value.end_mark.column] for name, (_, value) in pairs.items()}
        texts |= {name: _flow(value) for name, value in fields.items() if value is not None}
        entries = [f"{name}: {text}" for name, text in texts.items() if name not in fields or fields[name] is not None]
        changed = f"{line[: item.start_mark.column]}{{{', '.join(entries)}}}{line[item.end_mark.column :]}"
        return [*lines[: item.start_mark.line], changed, *lines[item.start_mark.line + 1 :]]
    column = item.start_mark.column
    last = _last_line(item)
    added = [
        line
        for name, value in fields.items()
        if value is not None and name not in pairs
        for line in _field(name, value)
    ]
    lines = [*lines[: last + 1], *(f"{' ' * column}{line}\n" for line in added), *lines[last + 1 :]]
    for name in sorted(pairs.keys() & fields.keys(), key=lambda name: -pairs[name][0].start_mark.line):  # from below
        lines = _with_field(lines, pairs[name], fields[name])
    return lines


def _with_field(lines: list[str], pair: tuple[yaml.Node, yaml.Node], value: Any) -> list[str]:
    """Return the lines with one field of a block replaced, or removed if `value` is None."""
    key, old = pair
    first, last = key.start_mark.line, _last_line(old)
    if value is not None and isinstance(old, yaml.ScalarNode) and old.style not in BLOCK_SCALARS and first == last:
        line = lines[first]  # a remark behind the value stays
        changed = [f"{line[: old.start_mark.column]}{_flow(value)}{line[old.end_mark.column :]}"]
    else:
        head = lines[first][: key.start_mark.column]
        texts = [] if value is None else _field(key.value, value)
        changed = [f"{head if not index else ' ' * len(head)}{text}\n" for index, text in enumerate(texts)]
        if not texts and head.strip():  # the dash needs another field behind it
            following = lines[last + 1]
            changed = [f"{head}{following[len(head) :]}"]
            last += 1
    return [*lines[:first], *changed, *lines[last + 1 :]]


def _dash(lines: Sequence[str], item: yaml.Node) -> int:
    """The column of the dash before an item."""
    dash = lines[item.start_mark.line][: item.start_mark.column].rfind("-")
    if dash < 0:
        raise EditError("the file has a dash in a separate line before a device: put them into one line")
    return dash


def _last_line(node: yaml.Node) -> int:
    """The line in which the content of a node ends, without comments and empty lines below it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    end = node.end_mark
    return end.line - 1 if isinstance(node, yaml.ScalarNode) and node.style in BLOCK_SCALARS else end.line


def _block(device: Mapping[str, Any]) -> list[str]:
    """The lines of a device, the first with its dash."""
    lines = [line for name, value in device.items() for line in _field(name, value)]
    return [f"{'  ' if index else '- '}{line}" for index, line in enumerate(lines)]


def _field(name: str, value: Any) -> list[str]:
    """The lines of a field: a line for each entry of a list with anything but plain values."""
    if isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        return [f"{name}:", *(f"  - {_flow(each)}" for each in value)]
    return [f"{name}: {_flow(value)}"]


def _flow(value: Any) -> str:
    """`value` in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _is_plain(value):
        return value
    text = UNPRINTABLE.sub(lambda sign: f"\\U{ord(sign[0]):08x}", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # without the point, YAML 1.1 reads a text
    return text


def _is_plain(text: str) -> bool:
    """True if YAML reads `text` as the same text without quotes, also within brackets."""
    try:
        return bool(PLAIN.fullmatch(text)) and yaml.safe_load(f"{{a: {text}, b: [{text}]}}") == {"a": text, "b": [text]}
    except (ValueError, yaml.YAMLError):  # such as a date that does not exist
        return False
