"""Run the hub's floors in separate processes: a bare server of sessions, and a process that does nothing."""

import asyncio
import sys

import uvloop
from aiohttp import web

from embereye.process.lifecycle import leave, run


def serve_sessions() -> None:
    """Answer sign-ins like the hub, without checking them. Runs until killed."""

    async def sign_in(request: web.Request) -> web.Response:
        response = web.json_response({"name": str(await request.json()), "role": "viewer"})
        response.set_cookie("session", "a" * 43, path="/", httponly=True, samesite="Strict")
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/session", sign_in)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


def wait_to_end() -> None:
    """Do nothing until SIGTERM."""

    async def main(stop: asyncio.Event) -> None:
        print("ready", flush=True)
        await stop.wait()

    leave(run(main))


if __name__ == "__main__":
    if sys.argv[1] == "sessions":
        serve_sessions()
    else:
        wait_to_end()
