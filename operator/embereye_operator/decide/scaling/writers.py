"""Who writes a fleet's spec.shards: two that undo each other's numbers are found out, and named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embereye.units import MINUTE
from embereye_operator.decide.manifests.names import MANAGED_BY

WINDOW = 10 * MINUTE  # in which they do
TURNS = 4  # of writers in turn that are a fight: this one, that one, and both once more
REMEMBERED = 16  # writes


@dataclass(frozen=True, slots=True)
class Write:
    """That spec.shards became somebody's."""

    when: int  # nanoseconds since the Unix epoch
    writer: str  # the field manager
    shards: int
    mark: tuple[str, ...]  # by which the API server tells this write from others


def latest_write(manifest: Mapping[str, Any], shards: int, now: int) -> Write | None:
    """Who owns spec.shards of a fleet, as its managedFields have it; None where they do not say.

    Where several do, they agree on the number, and the one who said so last counts.
    """
    entries = (manifest.get("metadata") or {}).get("managedFields") or ()
    if not entries:
        return None
    latest = max(entries, key=lambda entry: str(entry.get("time", "")))
    mark = tuple(str(latest.get(key, "")) for key in ("manager", "operation", "subresource", "time"))
    return Write(now, str(latest.get("manager", "")), shards, mark)


def remember(writes: tuple[Write, ...], latest: Write | None) -> tuple[Write, ...]:
    """`writes` with the latest one, where it is another than the one before."""
    if latest is None or (writes and (writes[-1].mark, writes[-1].shards) == (latest.mark, latest.shards)):
        return writes
    return (*writes, latest)[-REMEMBERED:]


def tell_fight(writes: tuple[Write, ...], now: int) -> str:
    """Which two writers undo each other's numbers, and the remedy; empty where none do."""
    recent = [write for write in writes if now - write.when <= WINDOW]
    turns = recent[:1]
    for write in recent[1:]:
        if write.writer == turns[-1].writer:
            turns[-1] = write
        elif write.shards != turns[-1].shards:
            turns.append(write)
    if len(turns) < TURNS:
        return ""
    one, other = sorted(turns[-2:], key=lambda write: write.writer != MANAGED_BY)
    back_and_forth = all(turn.writer in {one.writer, other.writer} for turn in turns[-TURNS:])
    if not back_and_forth:
        return ""
    return (
        f"spec.shards is written in turn by {one.writer} ({one.shards}) and {other.writer} ({other.shards}): take it "
        "out of what one of them applies, or set autoscaling.mode: none (docs/how-to/gitops.md)"
    )
