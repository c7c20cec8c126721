"""The writers of a fleet's spec.shards: detect and name two that undo each other's changes.

Each pass records the latest writer of spec.shards, as the fleet's managedFields name it, in the fleet's memory. If two
writers alternate with different numbers at least TURNS times within WINDOW, `describe_contest` names both. The usual
case is GitOps that applies a fixed number against an autoscaler. The sentence becomes the problem ShardsContested.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embereye.units import MINUTE
from embereye_operator.api.names import MANAGED_BY

WINDOW = 10 * MINUTE  # period in which changes are compared
TURNS = 4  # alternating writes that count as a contest: A, B, A, B
REMEMBERED = 16  # writes


@dataclass(frozen=True, slots=True)
class Write:
    """A change of spec.shards."""

    when: int  # nanoseconds since the Unix epoch
    writer: str  # the field manager
    shards: int
    mark: tuple[str, ...]  # identifies this write in managedFields


def latest_write(manifest: Mapping[str, Any], shards: int, now: int) -> Write | None:
    """Return the latest writer of spec.shards, from the fleet's managedFields; None if they are absent.

    If several own the field, they agree on the number, and the latest counts.
    """
    entries = (manifest.get("metadata") or {}).get("managedFields") or ()
    if not entries:
        return None
    latest = max(entries, key=lambda entry: str(entry.get("time", "")))
    mark = tuple(str(latest.get(key, "")) for key in ("manager", "operation", "subresource", "time"))
    return Write(now, str(latest.get("manager", "")), shards, mark)


def remember(writes: tuple[Write, ...], latest: Write | None) -> tuple[Write, ...]:
    """Return `writes` with `latest` appended if it differs from the last one."""
    if latest is None or (writes and (writes[-1].mark, writes[-1].shards) == (latest.mark, latest.shards)):
        return writes
    return (*writes, latest)[-REMEMBERED:]


def describe_contest(writes: tuple[Write, ...], now: int) -> str:
    """Name two writers that undo each other's numbers, with the remedy; '' if there are none."""
    recent = [write for write in writes if now - write.when <= WINDOW]
    turns = recent[:1]
    for write in recent[1:]:
        if write.writer == turns[-1].writer:
            turns[-1] = write
        elif write.shards != turns[-1].shards:
            turns.append(write)
    if len(turns) < TURNS:
        return ""
    first, second = sorted(turns[-2:], key=lambda write: write.writer != MANAGED_BY)
    back_and_forth = all(turn.writer in {first.writer, second.writer} for turn in turns[-TURNS:])
    if not back_and_forth:
        return ""
    return (
        f"spec.shards is written in turn by {first.writer} ({first.shards}) and {second.writer} ({second.shards}): "
        "remove it from the manifest of one of them, or set autoscaling.mode: none (docs/how-to/gitops.md)"
    )
