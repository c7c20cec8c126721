"""Programs that run beside a test, each in a separate group."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any


async def start(stack: contextlib.AsyncExitStack, *command: object, output: bool = False) -> asyncio.subprocess.Process:
    """Start `command` until `stack` closes; then its whole group ends. `output`: its standard output is a pipe."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if output else asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def end() -> None:
        if process.returncode is None:
            os.killpg(process.pid, 15)
        try:
            await asyncio.wait_for(process.wait(), 60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)

    stack.push_async_callback(end)
    return process


async def start_up(
    stack: contextlib.AsyncExitStack, data: Path, console: int, hub: int, *arguments: object, seconds: float = 120
) -> tuple[dict[str, Any], str]:
    """Start `embereye up` with these ports; return what it printed once it was ready, and the admin's token."""
    process = await start(
        stack, sys.executable, "-m", "embereye_cli", "up", "--json", "--data", data, "--console-port", console,
        "--hub-port", hub, *arguments, output=True,
    )  # fmt: skip
    assert process.stdout
    ready = json.loads(await asyncio.wait_for(process.stdout.readline(), seconds))
    return ready, Path(ready["adminTokenFile"]).read_text().strip()
