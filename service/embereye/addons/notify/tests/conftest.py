"""Fixtures: the databases of a hub, and the servers of services."""

from collections.abc import AsyncIterator, Iterator

import pytest
from harness.hubs import hub_process, make_hub, stored, stored_in_postgres

from .servers import HttpService, MailServer, mail_server

__all__ = ["hub_process", "make_hub", "stored", "stored_in_postgres"]


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
async def service() -> AsyncIterator[HttpService]:
    async with HttpService.running() as service:
        yield service
