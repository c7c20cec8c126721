"""A real Firefox in front of a console, steered by WebDriver BiDi, which Firefox itself speaks."""

import asyncio
import base64
import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

READY_SECONDS = 120
SECONDS = 120  # for one answer, and for one condition
LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
INTERRUPTED = "was interrupted while the page was loading."  # Firefox says so of WebSockets whose page is left
ENTER = "\ue007"  # WebDriver's code of the key
CENTRE = """(() => {
  const element = document.querySelector(%s);
  element.scrollIntoView({ block: "nearest" });
  const { left, top, width, height } = element.getBoundingClientRect();
  return [Math.round(left + width / 2), Math.round(top + height / 2)];
})()"""


class Firefox:
    """One window. AssertionError says what went wrong."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._context = ""
        self.problems: list[str] = []  # errors of pages

    async def start(self) -> None:
        """Begin the session, with the window that is open."""
        await self._call("session.new", capabilities={})
        await self._call("session.subscribe", events=["log.entryAdded"])
        self._context = (await self._call("browsingContext.getTree"))["contexts"][0]["context"]

    async def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=SECONDS)
            if answer.get("method") == "log.entryAdded" and answer["params"]["level"] == "error":
                self.problems += [text for text in [answer["params"]["text"]] if not text.endswith(INTERRUPTED)]
            if answer.get("id") == self._number:
                assert answer["type"] == "success", f"{method}: {answer['message']}"
                return answer["result"]

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the page, in CSS pixels."""
        await self._call(
            "browsingContext.setViewport", context=self._context, viewport={"width": width, "height": height}
        )

    async def open(self, url: str) -> None:
        """Open `url` and wait until it is loaded."""
        await self._call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def evaluate(self, script: str) -> Any:
        """The value of `script` on the page, by way of JSON."""
        expression = f"JSON.stringify({script}) ?? 'null'"
        target = {"context": self._context}
        answer = await self._call("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert answer["type"] == "success", f"{script}: {answer.get('exceptionDetails', {}).get('text')}"
        return json.loads(answer["result"]["value"])

    async def until(self, script: str) -> None:
        """Wait until `script` is true of the page."""
        for _ in range(20 * SECONDS):
            with contextlib.suppress(AssertionError):  # between two pages
                if await self.evaluate(f"Boolean({script})"):
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{script}: not within {SECONDS} s; {await self.evaluate('document.body.innerText')}")

    async def click(self, selector: str) -> None:
        """Press the left button of the mouse in the middle of an element, wherever that is covered."""
        x, y = await self.evaluate(CENTRE % json.dumps(selector))
        actions = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        await self._perform({"type": "pointer", "id": "mouse", "actions": actions})

    async def type(self, text: str) -> None:
        """Press and release the keys of `text`."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        await self._perform({"type": "key", "id": "keyboard", "actions": actions})

    async def fill(self, selector: str, text: str) -> None:
        """Type `text` into a field in place of its content."""
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.type(text)

    async def _perform(self, *actions: dict[str, Any]) -> None:
        await self._call("input.performActions", context=self._context, actions=list(actions))

    async def screenshot(self, path: Path) -> None:
        """Store the visible part of the page as PNG."""
        data = (await self._call("browsingContext.captureScreenshot", context=self._context))["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.asynccontextmanager
async def run_firefox(language: str = "en-US") -> AsyncIterator[Firefox]:
    """Open a window without a screen during the block; pages are requested in `language`."""
    program = shutil.which("firefox-esr")
    assert program
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Firefox asks Mozilla's servers for many things when it starts: all but this machine is behind a proxy that is
        # not there.
        settings = {
            "intl.accept_languages": language, "browser.shell.checkDefaultBrowser": False,
            "network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
            "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9,
            "datareporting.policy.dataSubmissionEnabled": False, "app.normandy.enabled": False,
        }  # fmt: skip
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items())
        (Path(profile) / "user.js").write_text("".join(lines))
        process = await asyncio.create_subprocess_exec(
            program, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(READY_SECONDS):
                    address = await _address(process)
                    session = await stack.enter_async_context(aiohttp.ClientSession())
                    socket = await stack.enter_async_context(session.ws_connect(f"{address}/session", max_msg_size=0))
                    window = Firefox(socket)
                    await window.start()
                yield window
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    async for line in process.stderr:
        if listening := LISTENING.search(line):
            return listening[1].decode()
    raise AssertionError("Firefox ended before it listened")
