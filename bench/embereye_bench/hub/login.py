"""Measure how long it takes 425 people to sign in at the same time."""

import asyncio
import time
from collections.abc import Sequence

import uvloop

from embereye.process.grpc_server import channel
from embereye.v1.access_pb2 import ROLE_VIEWER, CreateTokenRequest
from embereye.v1.access_pb2_grpc import AccessStub
from embereye_bench.hub.companions import line_of, module
from embereye_bench.hub.life import HubProcess, disk_hub
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST

CLIENTS = 425
STAGGER_SECONDS = 1.0  # over which clients arrive in the staggered rounds


async def _tokens(hub: HubProcess) -> list[str]:
    """Create a token for each client, because sign-ins with one token are limited."""
    async with channel(hub.grpc, token=hub.token) as link:
        create = AccessStub(link).CreateToken
        requests = (
            create(CreateTokenRequest(name=f"person-{n}", role=ROLE_VIEWER), timeout=30) for n in range(CLIENTS)
        )
        return [created.token for created in await asyncio.gather(*requests)]


async def _sign_in(port: int, token: str, delay: float) -> float:
    """Sign in; return the seconds from the dial to the session. RuntimeError if there is no session."""
    await asyncio.sleep(delay)
    body = f'{{"token": "{token}"}}'
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(
        f"POST /v1/session HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    duration = time.perf_counter() - began
    writer.close()
    if b" 200 " not in head or b"Set-Cookie" not in head:
        raise RuntimeError(f"no session: {head[:80]!r}")
    return duration


async def _sign_all_in(port: int, tokens: Sequence[str], over: float = 0.0) -> tuple[float, float]:
    """Sign all in, spread over `over` seconds; return the p99 of the durations and the sign-ins per second."""
    began = time.perf_counter()
    durations = await asyncio.gather(*(_sign_in(port, token, over * n / CLIENTS) for n, token in enumerate(tokens)))
    return sorted(durations)[int(CLIENTS * 0.99)], CLIENTS / (time.perf_counter() - began)


async def _login(rounds: int, bare: int) -> list[tuple[tuple[float, float], tuple[float, float], float]]:
    """For each round: the results at once, the same at the bare server, and the p99 of staggered sign-ins."""
    results = []
    with disk_hub() as hub:
        await hub.start()
        tokens = await _tokens(hub)
        await _sign_all_in(hub.http, tokens, 0.2)
        for _ in range(rounds):
            at_once, floor = await _sign_all_in(hub.http, tokens), await _sign_all_in(bare, tokens)
            staggered, _ = await _sign_all_in(hub.http, tokens, STAGGER_SECONDS)
            results.append((at_once, floor, staggered))
        await hub.end()
    return results


def login_425(scale: Scale) -> Result:
    """Measure 425 people who sign in with their own tokens, at once and over a second.

    Baseline: an aiohttp server that gives the same answer without checking.
    """
    with module("embereye_bench.hub.peers", "sessions") as process:
        rounds = uvloop.run(_login(scale.rounds, int(line_of(process))))
    at_once, rate = (median([ours[place] for ours, _, _ in rounds]) for place in range(2))
    floor, floor_rate = (median([bare[place] for _, bare, _ in rounds]) for place in range(2))
    staggered = median([late for _, _, late in rounds])
    ratio = median([ours[0] / bare[0] for ours, bare, _ in rounds])
    unit = f"s p99 at once, {rate:,.0f} sessions/s (bare {floor_rate:,.0f}); p99 staggered {staggered * 1e3:.0f} ms"
    return Result("login-425", at_once, unit, floor, ratio, "≤ 1 s, ≥ 1,000/s", at_once <= 1.0 and rate >= 1_000)
