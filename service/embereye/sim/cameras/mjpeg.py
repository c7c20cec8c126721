"""Simulated cameras that serve MJPEG over HTTP."""

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from embereye.process.http.server import bound_port, serve_http
from embereye.sim.scenes.films import Cameras

SEND_SECONDS = 5.0  # for one frame to a slow client, before it is disconnected
BOUNDARY = "frame"


def mjpeg_app(cameras: Cameras) -> web.Application:
    """Create an application that serves /ID.mjpg for every camera, and a list of them at /."""

    async def index(_: web.Request) -> web.Response:
        rows = "".join(f'<li><a href="/{spec.id}.mjpg">{spec.id}</a> {spec.zone}</li>' for spec in cameras.specs)
        return web.Response(text=f"<!doctype html><title>cameras</title><ul>{rows}</ul>", content_type="text/html")

    async def stream(request: web.Request) -> web.StreamResponse:
        camera = request.match_info["camera"]
        if camera not in cameras.films:
            raise web.HTTPNotFound(text=f"no camera {camera}\n")
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "multipart/x-mixed-replace"
        response.headers["Content-Type"] = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async for frame in cameras.frames(camera):
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame)}\r\n\r\n".encode()
                async with asyncio.timeout(SEND_SECONDS):
                    await response.write(head + frame + b"\r\n")
        return response

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/{camera}.mjpg", stream)
    return app


async def serve_mjpeg(
    cameras: Cameras, host: str, port: int, stop: asyncio.Event, ready: Callable[[int], None] | None = None
) -> None:
    """Serve `cameras` on `host`:`port` (0: any) until `stop`; call `ready` with the port once it listens."""
    runner = await serve_http(mjpeg_app(cameras), host, port)
    try:
        if ready:
            ready(bound_port(runner))
        await stop.wait()
    finally:
        await runner.cleanup()
