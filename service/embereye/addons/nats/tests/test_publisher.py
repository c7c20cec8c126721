import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from embereye.addons.nats.connection import BusError
from embereye.addons.nats.options import BusOptions
from embereye.addons.nats.publisher import Patience, Publisher
from embereye.hub.evidence_bus import Outgoing
from embereye.v1.evidence_pb2 import EvidenceItem


async def test_a_silent_server_is_noticed_even_if_the_hub_often_stalls() -> None:
    patience = Patience(answer=0.5, check=0.05, late=0.0)

    async def publish(*_: object, **__: object) -> None:
        """Accept a report and never answer."""

    silent = SimpleNamespace(new_inbox=lambda: "inbox", publish=publish, max_message_bytes=1_000_000, server="nats")
    publishing = Publisher(cast("Any", silent), BusOptions(["nats://nats:4222"]), "here", patience)
    await publishing.send(Outgoing(EvidenceItem(id="a"), lambda _: None, lambda _: None), time.time_ns())
    watching = asyncio.ensure_future(publishing.watch())
    for _ in range(30):
        time.sleep(0.1)  # noqa: ASYNC251 -- the hub stalls
        await asyncio.sleep(0.06)
    assert watching.done()
    assert isinstance(watching.exception(), BusError)
