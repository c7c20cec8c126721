"""A proxy in front of a real API server with real failures: statuses, silence, broken watches."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from harness.servers.apiserver import TOKEN, ApiServer

from embereye.process.addresses import free_port

Judge = Callable[[web.Request], "web.StreamResponse | None"]  # the answer in place of the server's


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in {"true", "1"}


def is_write(request: web.Request) -> bool:
    return request.method != "GET" and "/leases" not in request.path


def status(code: int, message: str, **headers: str) -> web.Response:
    """Build a refusal in the API server's form."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    # As bytes: with a charset in the content type clients would not recognise an API server's answer.
    return web.Response(body=json.dumps(body).encode(), status=code, headers=headers, content_type="application/json")


def gone() -> web.Response:
    """Build the answer to a watch whose version has expired."""
    object_ = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "too old"}
    return web.Response(text=json.dumps({"type": "ERROR", "object": object_}) + "\n", content_type="application/json")


class FaultyServer:
    """A server in a thread; tests may replace `judge` at any time."""

    def __init__(self, cluster: ApiServer, folder: Path) -> None:
        self.cluster = cluster
        self.judge: Judge = lambda _: None
        self.down = False
        self.answered: Counter[int] = Counter()  # answers in place of the server's, by status
        self.port = free_port()
        self.kubeconfig = folder / "faulty-kubeconfig"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{self.port}")))
        self._requests: dict[int, web.Request] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> "FaultyServer":
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def cut(self) -> None:
        """Break all connections, as a crashing server does."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for request in list(self._requests.values()):
            if request.transport:
                request.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        connector = aiohttp.TCPConnector(ssl=self.cluster.context, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._ready.set()
            await self._stop.wait()
            self._cut()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            assert request.transport
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        if (instead := self.judge(request)) is not None:
            self.answered[instead.status] += 1
            return instead
        self._requests[id(request)] = request
        try:
            return await self._forward(request)
        finally:
            del self._requests[id(request)]

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method,
            f"{self.cluster.url}{request.raw_path}",
            data=await request.read() or None,
            headers=headers,
            skip_auto_headers=("Content-Type",),
            timeout=timeout,
        ) as answer:
            preserved = {"Content-Type", "Content-Encoding", "Retry-After"}
            out = web.StreamResponse(
                status=answer.status, headers={k: v for k, v in answer.headers.items() if k in preserved}
            )
            await out.prepare(request)
            async for chunk in answer.content.iter_any():
                await out.write(chunk)
            await out.write_eof()
            return out


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "t", "cluster": {"server": url}}],
        "users": [{"name": "t", "user": {"token": TOKEN}}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "current-context": "t",
    }
