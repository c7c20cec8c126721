"""Objects on their way to a bucket and back."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from embereye.addons.archive.bucket import Bucket
from embereye.addons.archive.tests.buckets import MotoBucket, line_to
from embereye.addons.archive.tests.test_uploader import options_for

MB = 1024**2


async def test_the_timeout_does_not_limit_the_size_of_an_object(bucket: MotoBucket, tmp_path: Path) -> None:
    name = f"plain-{bucket.name}"
    bucket.client.create_bucket(Bucket=name)
    content, sent, fetched = os.urandom(18 * MB), tmp_path / "sent", tmp_path / "fetched"
    sent.write_bytes(content)
    async with line_to(bucket.port, 6 * MB) as port:  # some 3 s each way
        options = replace(options_for(bucket, tmp_path), bucket=name, endpoint=f"http://127.0.0.1:{port}", timeout=2.5)
        await Bucket(options).put("backups/large", sent, "application/gzip", {"sha256": "of it"})
        about = await asyncio.to_thread(Bucket(options).fetch, "backups/large", fetched)
    assert fetched.read_bytes() == content
    assert about["sha256"] == "of it"
