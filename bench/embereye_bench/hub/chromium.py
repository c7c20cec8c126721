"""One window of a headless Chromium, steered by its debugging protocol."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from embereye.process.lifecycle import UserError

READY_SECONDS = 30.0


class Window:
    """A page; every call waits for its result."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call `method` of the protocol and return its result. RuntimeError if it fails."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=READY_SECONDS)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"Chromium: {method}: {answer['error']['message']}")
                return answer["result"]

    async def evaluate(self, script: str) -> Any:
        """The value of `script`, or of the promise that it returns. RuntimeError if it throws."""
        result = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"Chromium: {result['exceptionDetails']}")
        return result["result"].get("value")


@contextlib.asynccontextmanager
async def chromium(width: int = 1440, height: int = 900) -> AsyncIterator[Window]:
    """Open a window during the block. UserError if Chromium is not installed."""
    program = shutil.which("chromium")
    if not program:
        raise UserError("chromium is not installed. Install Debian's package chromium.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        process = await asyncio.create_subprocess_exec(
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={name}", f"--window-size={width},{height}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
                port = await _port(Path(name) / "DevToolsActivePort")
                async with session.get(f"http://127.0.0.1:{port}/json") as response:
                    pages = json.loads(await response.text())
            (address,) = (page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
            async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
                yield Window(socket)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _port(path: Path) -> str:
    while not path.exists() or not path.read_text().strip():
        await asyncio.sleep(0.05)
    return path.read_text().split()[0]
