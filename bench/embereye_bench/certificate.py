"""Issue a certificate for benchmarks that use TLS."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embereye.process.identity.authority import Authority, utc_now
from embereye.process.identity.names import Identity, Role
from embereye_bench.sensors.load import HOST


@contextlib.contextmanager
def certificate() -> Iterator[Path]:
    """A folder with a certificate for this machine's loopback, and its authority's as ca.crt."""
    identity = Identity(Role.SHARD, "bench", "bench-0", "bench/sensors/hall")
    with tempfile.TemporaryDirectory() as name:
        for file, content in Authority.create(utc_now()).issue(identity, utc_now(), names=[HOST]).files.items():
            (Path(name) / file).write_bytes(content)
        yield Path(name)
