"""Connect to a host with several addresses, some of which may be unreachable, as IPv6 addresses often are.

uvloop and asyncio try one address without a time limit, so they would never try the next one.
"""

import asyncio
import errno
import socket
from functools import partial
from typing import Any

from embereye.process.remembered import Remembered

ADDRESS_SECONDS = 1.0  # for one of several addresses to answer before the next one is tried

_addresses: Remembered[tuple[str, int], list[Any]] = Remembered()  # by host and port, as getaddrinfo returns them


async def connect_any(host: str, port: int) -> socket.socket:
    """Connect to the first address of `host` that answers; OSError if none does.

    The last address has no time limit. If this is cancelled, no socket remains open.
    """
    loop = asyncio.get_running_loop()
    problems: list[OSError] = []
    look_up = partial(loop.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    addresses = await _addresses.get((host, port), look_up)
    for number, (family, kind, protocol, _, address) in enumerate(addresses, 1):
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # for example IPv6 on a machine without it
            problems.append(error)
            continue
        connection.setblocking(False)
        try:
            async with asyncio.timeout(ADDRESS_SECONDS if number < len(addresses) else None):
                await loop.sock_connect(connection, address)
        except OSError as error:  # includes TimeoutError
            connection.close()
            problems.append(error)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise min(problems, key=_is_vague)


def _is_vague(problem: OSError) -> bool:
    return isinstance(problem, TimeoutError) or problem.errno == errno.EAFNOSUPPORT
