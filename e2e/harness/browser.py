"""A real Chromium in front of a console, steered from tests.

All windows of a process are in one Chromium, because its start takes seconds of CPU. Each has separate cookies,
storage, caches and service workers, which end with it.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harness.need import BROWSER_FOLDER

SCRIPT = Path(__file__).with_name("browser.mjs")
SECONDS = 90  # for one answer
CLOSED_SECONDS = 10


class Browser:
    """One window. Every call waits for its result; AssertionError says what went wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, operation: str, **options: Any) -> Any:
        """Run `operation`, one of those in browser.mjs, on the page; return its result."""
        self._writer.write(json.dumps({"operation": operation, **options}).encode() + b"\n")
        line = await asyncio.wait_for(self._reader.readline(), SECONDS)
        assert line, f"{operation} {options}: Chromium has ended"
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


class Chromium:
    """A Chromium that opens a window for each connection to a socket. It ends with this process, at the latest."""

    def __init__(self) -> None:
        node, chromium = shutil.which("node"), shutil.which("chromium")
        assert node
        assert chromium
        self._folder = tempfile.TemporaryDirectory(prefix="embereye-browser-")
        self.socket = f"{self._folder.name}/socket"
        self._process = subprocess.Popen(
            [node, str(SCRIPT), str(BROWSER_FOLDER), chromium, self.socket],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"

    @property
    def has_ended(self) -> bool:
        """True after it crashed, or was closed."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Kill it. Windows that are open end."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


_started: list[Chromium] = []  # the newest one last
_starting = threading.Lock()


def _running() -> Chromium:
    """The Chromium of this process. It is started by the first window, and again after a crash."""
    with _starting:
        if not _started or _started[-1].has_ended:
            _started.append(Chromium())
        return _started[-1]


@contextlib.asynccontextmanager
async def run_browser() -> AsyncIterator[Browser]:
    """Open a window for the time of the block."""
    while True:
        chromium = await asyncio.to_thread(_running)
        try:
            reader, writer = await asyncio.open_unix_connection(chromium.socket, limit=2**24)
            break
        except OSError:  # it has just crashed
            await asyncio.to_thread(chromium.close)
    try:
        yield Browser(reader, writer)
    finally:
        with contextlib.closing(writer):
            try:
                async with asyncio.timeout(CLOSED_SECONDS):
                    writer.write_eof()
                    await reader.read()  # until its pages are closed
            except (OSError, TimeoutError):
                await asyncio.to_thread(chromium.close)
