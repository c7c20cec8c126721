"""The site under attack."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embereye.process.tasks import Tasks

from .site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A site without running processes."""
    async with Tasks() as tasks:
        site = Site(tmp_path, tasks)
        try:
            yield site
        finally:
            site.close()
