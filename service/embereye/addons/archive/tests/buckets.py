"""An S3 bucket under test, in moto's server, which can be stopped and started again, and a line to it."""

import asyncio
import contextlib
import logging
import math
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

from embereye.addons.archive.bucket import Bucket
from embereye.addons.archive.options import ArchiveOptions
from embereye.process.addresses import free_ports
from embereye.process.tasks import beside

os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
logging.getLogger("werkzeug").setLevel(logging.ERROR)


class MotoBucket:
    """The bucket, with a default retention of 30 days."""

    def __init__(self) -> None:
        self.name = f"evidence-{uuid.uuid4().hex[:8]}"  # moto's buckets outlive its servers, in this process
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._created = False
        self._server: ThreadedMotoServer | None = None
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="key", aws_secret_access_key="secret",
            region_name="us-east-1",
        )  # fmt: skip

    def start(self) -> None:
        created, self._created = self._created, True
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        if created:
            return
        self.client.create_bucket(Bucket=self.name, ObjectLockEnabledForBucket=True)
        retention = {"Mode": "COMPLIANCE", "Days": 30}
        self.client.put_object_lock_configuration(
            Bucket=self.name,
            ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},
        )

    def stop(self) -> None:
        if self._server:
            self._server.stop()
        self._server = None

    @property
    def names(self) -> list[str]:
        """The names of all objects."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=self.name).get("Contents", ())]

    def get(self, name: str) -> dict[str, Any]:
        """An object, with its content as `Body`."""
        answer: dict[str, Any] = self.client.get_object(Bucket=self.name, Key=name)
        return answer | {"Body": answer["Body"].read()}


def open_bucket(options: ArchiveOptions) -> Bucket:
    """Open a bucket; moto accepts no retention without this header, which the real service does not need."""
    return Bucket(options, {"x-amz-sdk-checksum-algorithm": "SHA256"})


@contextlib.asynccontextmanager
async def line_to(port: int, rate: float = math.inf, refused: bytes = b"") -> AsyncIterator[int]:
    """A port in front of `port` whose connections together pass `rate` bytes a second.

    A connection ends with a request whose first line contains `refused`.
    """
    loop, free_at = asyncio.get_running_loop(), 0.0

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal free_at
        with contextlib.suppress(OSError):
            while data := await reader.read(64 * 1024):
                if refused and refused in data.partition(b"\r\n")[0]:
                    break
                free_at = max(free_at, loop.time() - 0.5) + len(data) / rate  # a late turn is made up for
                await asyncio.sleep(free_at - loop.time())
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        async with beside(copy(reader, requests), name="line"):
            await copy(answers, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
