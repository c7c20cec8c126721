"""Run the measured side: a sensor shard that accepts readings, or a bare aiohttp handler that parses the same."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from embereye.addons.http_sensors.sensors import open_source
from embereye.process import lifecycle
from embereye.process.addresses import free_port
from embereye.process.tasks import Tasks, first_of
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.wire.readings.source import SensorSource, encode_source
from embereye_bench.sensors.server import answer, assignment, sums


async def serve_shard(devices: int) -> None:
    """Own `devices` sensors that send."""
    async with Tasks() as tasks:
        shard = SensorShard(sources={"push": open_source})
        port = free_port()
        options = ShardOptions("bench-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0, http_port=port)
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
        wanted = assignment(devices)
        for device in wanted.devices:
            device.source = encode_source(SensorSource("push://fleet", device.id))
        shard.apply(wanted)
        await _answer(port, lambda: sums(shard))
        await shard.drain()


async def serve_bare(devices: int) -> None:
    """Receive and parse the same bodies: the least that a handler does."""
    received = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal received
        entries = [json.loads(line) for line in (await request.read()).splitlines()]
        received += len(entries)
        return web.json_response({"accepted": len(entries)}, status=202)

    app = web.Application()
    app.router.add_post("/v1/readings", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    await _answer(port, lambda: {"offered": received})
    await runner.cleanup()


async def _answer(port: int, numbers: Callable[[], dict[str, Any]]) -> None:
    await answer(asyncio.get_running_loop(), {"http": port}, numbers)


def main() -> int:
    """Serve until standard input is closed."""
    kind, devices = sys.argv[1], int(sys.argv[2])
    lifecycle.configure_logging("ERROR")

    async def serve(stop: asyncio.Event) -> int:
        await first_of({"shard": serve_shard, "bare": serve_bare}[kind](devices), stop.wait())
        return 0

    return lifecycle.run(serve)


if __name__ == "__main__":
    sys.exit(main())
