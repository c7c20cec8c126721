"""Connections to names that have several addresses, of which one may lead nowhere, as many of IPv6 do.

uvloop and asyncio wait for each address as long as they are let: whoever waits for all of it never gets to the next.
"""

import asyncio
import errno
import socket

ADDRESS_SECONDS = 1.0  # for one of several addresses of a name to answer before the next one is tried


async def connect_any(host: str, port: int) -> socket.socket:
    """A connection to the first address of `host` that answers; OSError where none does.

    It waits for the last of several without end. Cancelled, it leaves nothing open.
    """
    loop = asyncio.get_running_loop()
    problems: list[OSError] = []
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # such as IPv6 on a machine without it
            problems.append(error)
            continue
        connection.setblocking(False)
        try:
            async with asyncio.timeout(ADDRESS_SECONDS if number < len(found) else None):
                await loop.sock_connect(connection, address)
        except OSError as error:  # a timeout is one
            connection.close()
            problems.append(error)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise min(problems, key=_says_little)


def _says_little(problem: OSError) -> bool:
    return isinstance(problem, TimeoutError) or problem.errno == errno.EAFNOSUPPORT
