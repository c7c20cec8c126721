"""Show if a device is watched, and what it sent: analysed, shed, rejected or waiting."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from embereye.process.lifecycle import NotFoundError
from embereye.units import SECOND
from embereye.zone.sentences import quantity
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import did_you_mean
from embereye_cli.terminal import local_time, print_answer


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("device", metavar="ID", help="the device's id")
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each fleet that has the device")


def run(arguments: Namespace) -> int:
    """Print what the hub knows of the device; return 1 if it is not covered."""
    answer = HttpHub(console_connection(arguments)).read("/v1/devices", "devices", "timeNs")
    entries = entries_of(answer["devices"], arguments.device)
    for entry in entries:
        print_answer(as_json(entry), sentences(entry, int(answer["timeNs"])), as_json=arguments.json)
    sys.stdout.flush()
    return 0 if all(entry["covered"] for entry in entries) else 1


def as_json(entry: dict[str, Any]) -> dict[str, Any]:
    """The device as programs read it, with the names of every other command."""
    renamed = {"device" if name == "id" else name: value for name, value in entry.items()}
    return renamed | {"balanced": is_balanced(entry.get("ledger", {}))}


def known_devices(hub: HttpHub) -> list[dict[str, Any]]:
    """All devices of all fleets, as `hub` knows them; UserError if it does not answer."""
    devices: list[dict[str, Any]] = hub.read("/v1/devices", "devices")["devices"]
    return devices


def entries_of(devices: list[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """The entries of `device` among `devices`: one for each fleet that has it. NotFoundError if there is none."""
    entries = [entry for entry in devices if entry["id"] == device]
    if not entries:
        hint = did_you_mean(device, (entry["id"] for entry in devices))
        raise NotFoundError(
            f"there is no device {device}: no fleet declares it, and none connects under this id.{hint}"
        )
    return entries


def _counts(ledger: dict[str, Any], name: str) -> dict[str, int]:
    return {reason: int(count) for reason, count in ledger.get(name, {}).items()}


def is_balanced(ledger: dict[str, Any]) -> bool:
    """True if a ledger adds up: offered = analysed + shed + duplicate + rejected + waiting."""
    parts = sum(int(ledger.get(name, 0)) for name in ("analysed", "duplicate", "waiting"))
    parts += sum(_counts(ledger, "shed").values()) + sum(_counts(ledger, "rejected").values())
    return int(ledger.get("offered", 0)) == parts


def _outcomes(ledger: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield "analysed", int(ledger.get("analysed", 0))
    yield "duplicate", int(ledger.get("duplicate", 0))
    for name in ("shed", "rejected"):
        for reason, count in sorted(_counts(ledger, name).items()):
            yield f"{name}: {reason}", count
    yield "waiting", int(ledger.get("waiting", 0))


def _owners(entry: dict[str, Any]) -> Iterator[str]:
    for owner in entry.get("owners", ()):
        at = local_time(int(owner["untilNs"]))
        until = {
            "open": "until now",
            "closed": f"until {at}, its last report",
            "lost": f"until {at}, then it ended without a report: later messages are not counted",
        }[owner["state"]]
        counts = ", ".join(f"{name} {count:,}" for name, count in _outcomes(owner["ledger"]) if count)
        yield f"    {owner['shard']} from {local_time(int(owner['sinceNs']))} {until}:"
        yield f"      offered {int(owner['ledger'].get('offered', 0)):,}: {counts or 'nothing'}"


def sentences(entry: dict[str, Any], now_ns: int) -> Iterator[str]:
    """The device for people; `now_ns` is the time by the hub's clock, which can differ from ours."""
    yield f"{entry['id']} in zone {entry['zone'] or 'none'} of {entry['fleet']}"
    yield "  covered" if entry["covered"] else f"  NOT covered: {entry['reason']}"
    if degraded := entry.get("degraded"):
        yield f"  degraded: {degraded}"
    if shards := entry.get("shards"):
        yield f"  owned by {', '.join(shards)}: {entry.get('state', 'unknown')}"
    for name, key in (("heard", "heardNs"), ("analysed", "analysedNs")):
        at = int(entry.get(key, 0))
        yield f"  last {name} {(now_ns - at) / SECOND:.1f} s ago" if at else f"  never {name}"
    for term in entry.get("latest", ()):
        yield f"  {term['name']}: {quantity(float(term.get('value', 0)), term.get('unit', ''))}"
    ledger = entry.get("ledger", {})
    owners = len(entry.get("owners", ()))
    yield f"  offered {int(ledger.get('offered', 0)):>12,}{f' to {owners} owners' if owners > 1 else ''}:"
    for name, count in _outcomes(ledger):
        yield f"  {name:<28} {count:>12,}"
    if shared := int(ledger.get("shared", 0)):
        yield f"  {shared:,} of them were received by two owners during a hand-over, and count twice"
    if takeovers := int(ledger.get("takeovers", 0)):
        times = "once" if takeovers == 1 else f"{takeovers:,} times"
        yield f"  {times} another connection took over this id: do two devices have it?"
    yield "  the ledger adds up" if is_balanced(ledger) else "  the ledger does NOT add up: please report this"
    if owners > 1:
        yield "  by owner:"
        yield from _owners(entry)
