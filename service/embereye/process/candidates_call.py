"""The call by which a shard reports its candidate to the hub: `embereye.v1.Candidates/Report`.

Request and answer are bytes: a `CandidateReport` as JSON, and nothing. The answer comes once its differences are
durable.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import grpc

from embereye.margins import Measured

SERVICE = "embereye.v1.Candidates"
CALL = f"{SERVICE}/Report"


class DifferenceRow(TypedDict):
    """A difference as it is sent and stored; times are nanoseconds on the clock of the sender."""

    id: str
    device: str
    zone: str
    kind: str
    level: str
    which: str  # the side that raised it: inForce or candidate
    atNs: int
    terms: Sequence[Measured]
    episode: str


@dataclass(frozen=True)
class CandidateReport:
    """The state of a shard's candidate, and new differences."""

    fleet: str
    shard: str
    candidate: str  # name, for people
    id: str  # of the comparison
    since_ns: int  # when this shard began to compare
    sent_ns: int
    seen: int = 0  # readings or frames that it judged
    unseen: int = 0  # those that it did not, because the shard was busy
    cpu_seconds: float = 0.0
    differences: Sequence[DifferenceRow] = ()

    def dump(self) -> bytes:
        """The report as JSON."""
        return json.dumps(vars(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def load(cls, data: bytes) -> "CandidateReport":
        """Read the bytes of `dump`; ValueError if they are invalid."""
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("the report of a candidate is a JSON object")  # noqa: TRY004 - as for JSON that is damaged
        for name, hint in (*dict.fromkeys(TEXTS, str).items(), *dict.fromkeys(WHOLE, int).items()):
            if type(fields.get(name)) is not hint:
                raise ValueError(f"{name} is missing in the report of a candidate, or has another type")
        rows = fields.get("differences", ())
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            raise ValueError("a difference lacks a field, or one has another type")
        known = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
        return cls(**known)


TEXTS = ("fleet", "shard", "candidate", "id")
WHOLE = ("since_ns", "sent_ns", "seen", "unseen")


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and all(
        isinstance(row.get(name), int if name == "atNs" else list if name == "terms" else str)
        for name in DifferenceRow.__annotations__
    )


def add_candidates(servicer: Any, server: Any) -> None:
    """Add `servicer.report`, which gets a report's bytes and returns b"", to `server`."""
    handler = grpc.unary_unary_rpc_method_handler(
        servicer.report, request_deserializer=bytes, response_serializer=bytes
    )
    server.add_registered_method_handlers(SERVICE, {"Report": handler})


async def send_report(channel: grpc.aio.Channel, report: bytes, seconds: float) -> None:
    """Send a report; raises AioRpcError."""
    call: Any = channel.unary_unary(f"/{CALL}", request_serializer=bytes, response_deserializer=bytes)
    await call(report, timeout=seconds)
