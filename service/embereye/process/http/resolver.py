"""Names of HTTP servers that remain reachable while no name server answers."""

import socket

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

from embereye.process.remembered import Remembered

_answers: Remembered[tuple[str, int, int], list[ResolveResult]] = Remembered()  # by host, port and family


class RememberingResolver(ThreadedResolver):
    """Resolves names for aiohttp; while that fails or takes long, into the addresses from before."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve `host`; OSError if that fails and no address is known."""
        answer = super().resolve
        return await _answers.get((host, port, family), lambda: answer(host, port, family))
