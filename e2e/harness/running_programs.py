"""Programs that run beside a test, each in a separate group."""

import asyncio
import contextlib
import os


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
