"""A shard in the test's process, for a hub in another process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from embereye.process.addresses import free_ports
from embereye.shard.service import ShardCore, ShardOptions, ShardProcess
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.shard_pb2_grpc import ShardStub

if TYPE_CHECKING:
    from harness.hubs import HubProcess


@contextlib.asynccontextmanager
async def shard_process(
    core: ShardCore, hub: HubProcess, folder: Path, assignment: Assignment
) -> AsyncIterator[ShardOptions]:
    grpc_port, tcp_port, metrics_port, control_port = free_ports(4)
    options = ShardOptions(
        assignment.shard,
        folder / "none",
        hub.control,
        folder / "data",
        "127.0.0.1",
        grpc_port,
        tcp_port,
        metrics_port,
        0,
        0,
        control_port=control_port,
    )
    stop = asyncio.Event()
    running = asyncio.ensure_future(ShardProcess(core, options).run(stop))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{control_port}") as link:
            answer = await ShardStub(link).Assign(assignment, wait_for_ready=True, timeout=20)
            assert answer.accepted, answer.reason
        yield options
    finally:
        stop.set()
        await running
