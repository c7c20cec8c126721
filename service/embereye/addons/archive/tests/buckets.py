"""An S3 bucket under test, in moto's server, which can be stopped and started again."""

import logging
import os
import uuid
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

from embereye.addons.archive.bucket import Bucket
from embereye.addons.archive.options import ArchiveOptions
from embereye.process.addresses import free_ports

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
