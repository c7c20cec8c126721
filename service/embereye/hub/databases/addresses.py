"""Addresses of database servers, remembered for the time in which their names cannot be resolved.

If a node that served DNS is lost, a lookup may take 20 s and then fail, until the cluster has noticed the loss. A
replica that takes over the hub must not wait for that. It waits a second for a lookup, and then uses the addresses that
the name had before. The result of a lookup that ends later is used the next time.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from embereye.process.remembered import LOOKUP_SECONDS

LookUp = Callable[[str], list[str]]


def look_up(host: str) -> list[str]:
    """Resolve `host` into IP addresses, best first. OSError if that fails."""
    return list(dict.fromkeys(str(answer[4][0]) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))


class KnownAddresses:
    """The latest addresses of each host name, for threads. `process/remembered.py` has the same for the event loop."""

    def __init__(self, look_up: LookUp = look_up, patience: float = LOOKUP_SECONDS) -> None:
        """`patience` is in seconds."""
        self._look_up = look_up
        self._patience = patience
        self._lock = threading.Lock()
        self._known: dict[str, list[str]] = {}
        self._lookups: dict[str, tuple[Future[list[str]], float]] = {}  # those that last → began, in monotonic seconds

    def of(self, host: str) -> list[str]:
        """The IP addresses of `host`: the present ones, or known ones if a lookup fails or takes long.

        OSError if none are known and the lookup fails.
        """
        lookup, began, known = self._begin(host)
        try:
            return lookup.result(max(began + self._patience - time.monotonic(), 0.0) if known else None)
        except OSError:  # TimeoutError is one
            if not known:
                raise
            return known

    def _begin(self, host: str) -> tuple[Future[list[str]], float, list[str]]:
        """Start a lookup of `host` unless one lasts; return it, its beginning, and the addresses known so far."""
        with self._lock:
            if host not in self._lookups:
                lookup = Future[list[str]]()
                self._lookups[host] = lookup, time.monotonic()
                # A daemon: a lookup must not delay the end of the process.
                threading.Thread(target=self._run, args=(host, lookup), name="look-up", daemon=True).start()
            return *self._lookups[host], self._known.get(host, [])

    def _run(self, host: str, lookup: Future[list[str]]) -> None:
        addresses, failure = list[str](), OSError(f"{host} has no address")
        try:
            addresses = self._look_up(host)
        except OSError as error:
            failure = error
        except ValueError as error:  # a name that cannot be one, such as one with an empty part
            failure = OSError(str(error))
        with self._lock:
            del self._lookups[host]
            if addresses:
                self._known[host] = addresses
        if addresses:
            lookup.set_result(addresses)
        else:
            lookup.set_exception(failure)


KNOWN = KnownAddresses()  # of this process


def dialled(options: Mapping[str, Any], known: KnownAddresses) -> list[dict[str, Any]]:
    """`options` of a connection, once for each address of its host, in the order in which to try them.

    Options without a single host name remain as they are: a socket's folder, several hosts, or an address besides the
    name. OSError if the name cannot be resolved and no address is known.
    """
    host = str(options.get("host") or "")
    if not host or host.startswith(("/", "@")) or "," in host or options.get("hostaddr"):
        return [dict(options)]
    return [{**options, "hostaddr": address} for address in known.of(host)]
