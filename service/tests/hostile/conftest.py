"""The site that attacks are made on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embereye.process.tasks import Tasks

from .site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """No process runs yet."""
    async with Tasks() as tasks:
        site = Site(tmp_path, tasks)
        try:
            yield site
        finally:
            site.close()
