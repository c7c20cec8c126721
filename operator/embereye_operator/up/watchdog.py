"""Notifies systemd's watchdog that this process is alive: sd_notify(3), sd_watchdog_enabled(3)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping


async def notify_watchdog(environment: Mapping[str, str] = os.environ) -> None:
    """Notify it twice per WatchdogSec while this event loop runs; return at once if no watchdog is configured."""
    address, allowed = environment.get("NOTIFY_SOCKET", ""), environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", "") in {"", str(os.getpid())}
    if not (address and allowed.isdecimal() and meant):
        return
    if address.startswith("@"):  # in Linux' abstract namespace
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.setblocking(False)
        while True:
            with contextlib.suppress(OSError):  # a restarting manager gets the next one
                notifications.sendto(b"WATCHDOG=1", address)
            await asyncio.sleep(int(allowed) / 1e6 / 2)
