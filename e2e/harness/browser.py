"""A real Chromium in front of a console, steered from a test."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harness.need import BROWSER_FOLDER

SCRIPT = Path(__file__).with_name("browser.mjs")
SECONDS = 90  # for one answer


class Browser:
    """One window. Every call waits for its result; AssertionError says what went wrong."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, operation: str, **options: Any) -> Any:
        """Run `operation`, one of those in browser.mjs, on the page; return its result."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"operation": operation, **options}).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS)
        answer = json.loads(line)
        assert "error" not in answer, f"{operation} {options}: {answer['error']}"
        return answer["value"]

    async def sign_in(self, base: str, token: str, **options: Any) -> None:
        """Open the console and sign in as a person does."""
        await self.ask("open", url=f"{base}/login", **options)
        await self.ask("fill", selector="#token", text=token)
        await self.ask("click", selector="#send")
        await self.until("document.querySelector('#me')?.textContent")

    async def until(self, script: str) -> None:
        """Wait until `script` is true of the page."""
        await self.ask("until", script=script)

    async def text(self, selector: str) -> str:
        """The visible text of an element."""
        text: str = await self.ask("text", selector=selector)
        return text


@contextlib.asynccontextmanager
async def run_browser() -> AsyncIterator[Browser]:
    """Open a window for the time of the block."""
    node, chromium = shutil.which("node"), shutil.which("chromium")
    assert node
    assert chromium
    process = await asyncio.create_subprocess_exec(
        node, str(SCRIPT), str(BROWSER_FOLDER), chromium,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    try:
        assert await asyncio.wait_for(process.stdout.readline(), SECONDS) == b"ready\n"
        yield Browser(process)
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()
