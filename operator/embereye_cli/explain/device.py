"""`embereye explain device ID`: what became of everything a device sent, and whether it is watched."""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.units import SECOND
from embereye.zone.sentences import quantity
from embereye_cli.hub.http import HttpHub, add_console_options


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("device", metavar="ID", help="the device's id")
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each fleet that knows it")


def run(arguments: Namespace) -> int:
    """Print what the hub knows of the device; 1 where it is not covered."""
    answer = HttpHub(arguments.console, arguments.token).read("/v1/devices", "devices", "timeNs")
    entries = [entry for entry in answer["devices"] if entry["id"] == arguments.device]
    if not entries:
        raise UserError(f"no fleet declares a device {arguments.device}, and none of that name talks to a shard")
    for entry in entries:
        if arguments.json:
            print(json.dumps(entry | {"balanced": balanced(entry.get("ledger", {}))}, ensure_ascii=False))
        else:
            print("\n".join(map(visible, sentences(entry, int(answer["timeNs"])))))
    sys.stdout.flush()
    return 0 if all(entry["covered"] for entry in entries) else 1


def known_devices(console: str, token: str) -> list[dict[str, Any]]:
    """What the hub at `console` knows of every device; UserError where it does not answer."""
    found: list[dict[str, Any]] = HttpHub(console, token).read("/v1/devices", "devices")["devices"]
    return found


def _counts(ledger: dict[str, Any], name: str) -> dict[str, int]:
    return {reason: int(count) for reason, count in ledger.get(name, {}).items()}


def balanced(ledger: dict[str, Any]) -> bool:
    """Whether a ledger adds up: offered = analysed + shed + duplicate + rejected + waiting."""
    parts = sum(int(ledger.get(name, 0)) for name in ("analysed", "duplicate", "waiting"))
    parts += sum(_counts(ledger, "shed").values()) + sum(_counts(ledger, "rejected").values())
    return int(ledger.get("offered", 0)) == parts


def _clock(nanoseconds: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(int(nanoseconds) / SECOND))


def _outcomes(ledger: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield "analysed", int(ledger.get("analysed", 0))
    yield "duplicate", int(ledger.get("duplicate", 0))
    for name in ("shed", "rejected"):
        for reason, count in sorted(_counts(ledger, name).items()):
            yield f"{name}: {reason}", count
    yield "waiting", int(ledger.get("waiting", 0))


def _owners(entry: dict[str, Any]) -> Iterator[str]:
    for owner in entry.get("owners", ()):
        at = _clock(owner["untilNs"])
        until = {
            "open": "until now",
            "closed": f"until {at}, its last word",
            "lost": f"until {at}, then it ended without a word: what it took after that is not told",
        }[owner["state"]]
        counts = ", ".join(f"{name} {count:,}" for name, count in _outcomes(owner["ledger"]) if count)
        yield f"    {owner['shard']} from {_clock(owner['sinceNs'])} {until}:"
        yield f"      offered {int(owner['ledger'].get('offered', 0)):,}: {counts or 'nothing'}"


def sentences(entry: dict[str, Any], now_ns: int) -> Iterator[str]:
    """What is known of a device, for people; `now_ns` is the hub's time, whose clock may be another than ours."""
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
    yield f"  offered {int(ledger.get('offered', 0)):>12,}{f' to {owners} owners' if owners > 1 else ''}, of which"
    for name, count in _outcomes(ledger):
        yield f"  {name:<28} {count:>12,}"
    if shared := int(ledger.get("shared", 0)):
        yield f"  {shared:,} of them were taken by two owners while it changed hands, and count twice"
    if takeovers := int(ledger.get("takeovers", 0)):
        times = "once" if takeovers == 1 else f"{takeovers:,} times"
        yield f"  {times} another connection began to speak for it: do two devices have this id?"
    yield "  the ledger adds up" if balanced(ledger) else "  the ledger does NOT add up: please report this"
    if owners > 1:
        yield "  by owner:"
        yield from _owners(entry)
