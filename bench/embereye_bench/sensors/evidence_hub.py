"""Simulate the hub for a shard's evidence: accept everything, and record the time of arrival."""

import asyncio
import time
from collections.abc import AsyncIterator

from embereye.v1.evidence_pb2 import ReportRequest, ReportResponse
from embereye.v1.evidence_pb2_grpc import EvidenceServicer


class EvidenceHub(EvidenceServicer):
    """Accepts evidence and records when it arrived."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.more = asyncio.Event()

    async def Report(self, requests: AsyncIterator[ReportRequest], context: object) -> AsyncIterator[ReportResponse]:
        """Acknowledge everything."""
        async for request in requests:
            if request.HasField("evidence"):
                self.seen.setdefault(request.evidence.device, time.perf_counter())
                self.more.set()
                yield ReportResponse(acknowledged=[request.evidence.id])
            else:
                yield ReportResponse()
