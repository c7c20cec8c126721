"""The choice of the connection that speaks for a device, if several send as it.

The newest connection wins, unless the fleet's access rules bind a device to its certificate, or else to the address it
was first heard from. A speaker that is silent is replaced by any other connection.
"""

from collections.abc import Callable
from typing import Protocol

from embereye.shard.access import Grant

SUPERSEDED = "a newer connection speaks for it"
PINNED = "another address speaks for it"


class Connection(Protocol):
    """A connection that sends as a device."""

    number: int  # when the device connected, nanoseconds since the Unix epoch
    address: str  # remote host
    grant: Grant  # the devices that it may speak for


def refusal(claimant: Connection, speaker: Connection, *, pins: bool, is_heard: Callable[[], bool]) -> str:
    """Return why `claimant` may not replace `speaker`: PINNED, SUPERSEDED, or '' if it may.

    `pins`: the access rules bind devices. `is_heard` returns True if the speaker was heard within the deadline.
    """
    is_stranger = speaker.address != claimant.address or bool(speaker.grant.device)
    if pins and is_stranger and not claimant.grant.device and is_heard():
        return PINNED
    return SUPERSEDED if speaker.number > claimant.number and is_heard() else ""
