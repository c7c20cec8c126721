"""Make a list of devices from a spreadsheet: a ConfigMap that fleets name in `camerasFrom` or `sensorsFrom`.

The first line has the columns' names: id (or name), zone and source for cameras; id and zone for sensors. Others are
those of the fleet, such as location, credentials, record, detect, template, heartbeat and masks. Columns for lists and
objects, such as masks, areas and calibration, have JSON. Every refused line is reported with its number and the reason.
Nothing is written then, unless --skip-refused is given. The differences are printed, and the same table always makes
the same file.
"""

import argparse
import csv
import difflib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from embereye.process.files import write_whole
from embereye.process.lifecycle import CheckFailedError, NotFoundError, UserError
from embereye.units import counted
from embereye_cli.parser import did_you_mean
from embereye_operator.api.cameras import Camera, exposed_passwords
from embereye_operator.api.fleets import FleetError, parse_devices

Kind = Literal["cameras", "sensors"]
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "cameras": (
        "id",
        "zone",
        "source",
        "location",
        "credentials",
        "detect",
        "record",
        "detectors",
        "masks",
        "privacyMasks",
        "areas",
        "fps",
        "radiometry",
        "view",
    ),
    "sensors": (
        "id",
        "zone",
        "source",
        "location",
        "credentials",
        "template",
        "heartbeat",
        "interval",
        "fields",
        "calibration",
        "areas",
    ),
}
AS_JSON = ("masks", "privacyMasks", "areas", "fps", "radiometry", "fields", "calibration")  # columns
MOST = 1_000_000  # bytes of a ConfigMap; Kubernetes allows a little more
LISTED = 20  # refused lines that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye fleet import`."""
    parser.add_argument("table", type=Path, metavar="TABLE.csv|xlsx", help="table of devices")
    parser.add_argument("--kind", choices=("cameras", "sensors"), default="cameras", help="devices (%(default)s)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.yaml", help="file to write (default: the table's name, .yaml)"
    )
    parser.add_argument("--name", default="", help="name of the ConfigMap (default: the kind)")
    parser.add_argument("--namespace", "-n", default="default", help="namespace of the ConfigMap (%(default)s)")
    parser.add_argument("--zone", default="", help="zone of lines without one")
    parser.add_argument("--dry-run", action="store_true", help="print the differences; write nothing")
    parser.add_argument("--skip-refused", action="store_true", help="write the other lines although some are refused")


def run(arguments: argparse.Namespace) -> int:
    """Read, check, compare and write; exit code 1 if lines were refused."""
    kind: Kind = arguments.kind
    devices, refused = convert(kind, _rows(kind, arguments.table), arguments.zone)
    for line, reason in refused[:LISTED]:
        print(f"{arguments.table}:{line}: {reason}", file=sys.stderr)
    if len(refused) > LISTED:
        print(f"{arguments.table}: and {len(refused) - LISTED} more lines", file=sys.stderr)
    if refused and not arguments.skip_refused:
        raise CheckFailedError(f"{counted(len(refused), 'line')} refused: nothing was written")
    _warn_of_passwords(arguments.table, kind, devices)
    name = arguments.name or kind
    out = arguments.out or arguments.table.with_suffix(".yaml")
    text = config_map(kind, devices, name, arguments.namespace)
    if len(text.encode()) > MOST:
        raise UserError(f"{counted(len(devices), 'device')}: too long for one ConfigMap. Split the table")
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    print_difference(before, text)
    if text != before and not arguments.dry_run:
        write_whole(out, text.encode())
        # kubectl's own copy of a manifest, in an annotation, has room for some 2,000 devices only.
        print(
            f"{out}: written. Name it in the fleet: {kind}From: [{{configMapRef: {{name: {name}}}}}]. "
            f"In a cluster, apply it: kubectl apply --server-side -f {shlex.quote(str(out))}",
            file=sys.stderr,
        )
    return 1 if refused else 0


def _warn_of_passwords(table: Path, kind: Kind, devices: list[dict[str, Any]]) -> None:
    """Print which cameras' addresses contain a password: everybody who reads the ConfigMap sees it."""
    suspects = [device for device in devices if kind == "cameras" and "@" in json.dumps(device)]
    cameras = (device for device in parse_devices(kind, json.dumps(suspects), "line") if isinstance(device, Camera))
    if why := exposed_passwords(cameras):
        print(f"{table}: warning: {why}: the column credentials", file=sys.stderr)


def print_difference(before: str, after: str) -> None:
    """Print what changes, like `diff --unified`, or that nothing does."""
    if before == after:
        print("no difference", file=sys.stderr)
        return
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=1)
    print("\n".join(lines))


def convert(
    kind: Kind, rows: Iterator[tuple[int, dict[str, str]]], zone: str
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """Convert rows to devices as manifests have them; also return the refused lines and the reasons."""
    devices: list[dict[str, Any]] = []
    refused: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        try:
            device = _device(kind, row | ({"zone": zone} if zone and not row.get("zone") else {}))
            parse_devices(kind, json.dumps([device]), "line")
            if kind == "cameras":
                _check_addresses(device)
        except FleetError as error:
            refused.append((line, "; ".join(error.problems).replace(f"{kind}[0].", "")))
            continue
        except ValueError as error:
            refused.append((line, str(error)))
            continue
        if first := seen.get(device["id"]):
            refused.append((line, f"id: {device['id']} is in line {first} already"))
            continue
        seen[device["id"]] = line
        devices.append(device)
    return devices, refused


def _check_addresses(camera: Mapping[str, Any]) -> None:
    """Raise a ValueError that says what to write if a shard could not open an address of `camera`."""
    from embereye.camera.sources.declared import parse_source

    for address in (camera["source"], *camera.get("streams", {}).values()):
        if "://" in address:
            parse_source(address)


def _device(kind: Kind, row: Mapping[str, str]) -> dict[str, Any]:
    """Convert one row; ValueError says what is wrong."""
    device: dict[str, Any] = {name: row[name] for name in COLUMNS[kind] if row.get(name)}
    if credentials := device.pop("credentials", ""):
        device["credentialsRef"] = {"name": credentials}
    if streams := {name: device.pop(name) for name in ("detect", "record") if name in device}:
        device["streams"] = streams
    if "detectors" in device:
        device["detectors"] = device["detectors"].replace(",", " ").split()
    for name in AS_JSON:
        if name in device:
            try:
                device[name] = json.loads(device[name])
            except json.JSONDecodeError as error:
                raise ValueError(f"{name}: not JSON, as manifests have it: {error.msg}") from error
    return device


def config_map(kind: Kind, devices: list[dict[str, Any]], name: str, namespace: str) -> str:
    """Return the ConfigMap's manifest, with one device in each line."""
    listed = "".join(f"    - {json.dumps(device, ensure_ascii=False)}\n" for device in devices)
    return (
        f"# Made by `embereye fleet import`: change the table instead.\napiVersion: v1\nkind: ConfigMap\n"
        f"metadata: {{name: {name}, namespace: {namespace}}}\ndata:\n  {kind}: |\n{listed or '    []' + chr(10)}"
    )


def _rows(kind: Kind, table: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each line and its values by column; UserError if the table cannot be read."""
    try:
        lines = _sheet(table) if table.suffix.lower() == ".xlsx" else _csv(table)
        head = [str(cell).strip() for cell in next(lines, [])]
        if "id" not in head:
            head = ["id" if name == "name" else name for name in head]
    except FileNotFoundError as error:
        raise NotFoundError(f"{table}: does not exist") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table}: cannot be read ({error})") from error
    known = sorted(COLUMNS[kind])
    if "id" not in head:
        raise UserError(f"{table}: its first line has no column id. Columns of {kind}: {', '.join(known)}")
    if unknown := [name for name in head if name and name not in known]:
        raise UserError(
            f"{table}: column {unknown[0]}: {kind} have only {', '.join(known)}.{did_you_mean(unknown[0], known)}"
        )
    for number, cells in enumerate(lines, 2):
        row = {name: cell.strip() for name, cell in zip(head, cells, strict=False) if name and cell.strip()}
        if row:
            yield number, row


def _csv(table: Path) -> Iterator[list[str]]:
    text = table.read_text(encoding="utf-8-sig")  # spreadsheets write a mark
    first = text.partition("\n")[0]
    yield from csv.reader(text.splitlines(), delimiter=";" if first.count(";") > first.count(",") else ",")


def _sheet(table: Path) -> Iterator[list[str]]:
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(f"{table}: needs openpyxl: pip install 'embereye[spreadsheet]'") from error
    try:
        rows = load_workbook(table, read_only=True, data_only=True).active.iter_rows(values_only=True)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{table}: is no workbook ({error})") from error
    except Exception as error:
        if isinstance(error, OSError):
            raise
        raise UserError(f"{table}: is no workbook ({error})") from error
    for row in rows:
        yield ["" if cell is None else str(cell) for cell in row]


def exported(kind: Kind, text: str) -> list[dict[str, str]]:
    """Return the rows of a manifest's list of devices, the inverse of `convert`."""
    rows = []
    for device in yaml.safe_load(text) or []:
        row = {name: _cell(device[name]) for name in COLUMNS[kind] if device.get(name)}
        if reference := device.get("credentialsRef"):
            row["credentials"] = reference["name"]
        row |= device.get("streams") or {}
        rows.append(row)
    return rows


def _cell(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
