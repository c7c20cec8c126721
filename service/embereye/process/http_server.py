"""A small HTTP server: the metrics page of a shard, the console of the hub."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from embereye.process.lifecycle import UserError


def metrics_app(registry: CollectorRegistry, unhealthy: Callable[[], str] = str) -> web.Application:
    """An application that serves `registry` at /metrics and answers /healthz: 503 while `unhealthy()` says why."""
    app = web.Application()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        why = unhealthy()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    return app


def all_interfaces(host: str) -> str | None:
    """`host` for asyncio's servers: gRPC's "[::]" means every address of both families, asyncio's "::" only IPv6."""
    return None if host in {"[::]", "::"} else host.strip("[]")


async def serve_http(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Serve `app` on `host:port`; stop it with `await runner.cleanup()`; the port is `bound_port(runner)`."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, all_interfaces(host), port).start()
    except OSError as error:
        await runner.cleanup()
        raise UserError(f"cannot listen for HTTP on {host}:{port}: {error.strerror or error}") from error
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port that `runner` listens on."""
    return int(runner.addresses[0][1])
