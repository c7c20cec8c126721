"""Tells systemd that this process goes on, as a unit's WatchdogSec asks: sd_notify(3), sd_watchdog_enabled(3)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping


async def keep_watchdog(environment: Mapping[str, str] = os.environ) -> None:
    """Tell it twice in the time that it allows while this event loop runs; return where it asks for nothing."""
    address, allowed = environment.get("NOTIFY_SOCKET", ""), environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", "") in {"", str(os.getpid())}
    if not (address and allowed.isdecimal() and meant):
        return
    if address.startswith("@"):  # in Linux' abstract namespace
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.setblocking(False)
        while True:
            with contextlib.suppress(OSError):  # a manager that starts anew hears the next one
                told.sendto(b"WATCHDOG=1", address)
            await asyncio.sleep(int(allowed) / 1e6 / 2)
