"""Fixtures: the databases of a hub, hub processes, and a bucket of moto's server."""

from collections.abc import Iterator

import pytest
from harness.hubs import make_hub, stored, stored_apart, stored_in_postgres

from embereye.addons.archive.tests.buckets import MotoBucket

__all__ = ["make_hub", "stored", "stored_apart", "stored_in_postgres"]


@pytest.fixture
def bucket() -> Iterator[MotoBucket]:
    """A bucket with object lock: objects are retained for 30 days."""
    made = MotoBucket()
    made.start()
    yield made
    made.stop()
