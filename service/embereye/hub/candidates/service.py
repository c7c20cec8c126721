"""The hub's side of `Candidates/Report`."""

import grpc

from embereye.hub.candidates.keeper import Candidates
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.process.candidates_call import CandidateReport
from embereye.process.identity.guard import caller

Context = grpc.aio.ServicerContext[bytes, bytes]


class CandidateService:
    """Serves any number of shards."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    async def receive(self, request: bytes, context: Context) -> bytes:
        """Store one report."""
        try:
            report = CandidateReport.load(request)
        except (ValueError, TypeError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        identity = caller(context)
        if identity and identity.fleet != report.fleet:
            reason = f"{identity} reports candidates of its fleet only, not of {report.fleet}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        try:
            await self._candidates.record(report)
        except (StoreFailingError, StoreError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return b""
