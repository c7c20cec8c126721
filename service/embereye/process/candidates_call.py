"""The call by which a shard reports its candidate to the hub: `embereye.v1.Candidates/Report`.

Request and answer are bytes: a `CandidateReport` as JSON, and nothing. The answer comes once its differences are
durable.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, get_args

from embereye.levels import Level
from embereye.margins import Measured
from embereye.process.byte_call import ByteCall
from embereye.process.margins_call import LATEST_NS

CALL = ByteCall("embereye.v1.Candidates", "Report")
MEASURED = get_args(Measured)  # the types of a term's values


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
    problem: str = ""  # why it cannot judge, with the device; empty: it can

    def dump(self) -> bytes:
        """The report as JSON."""
        return json.dumps(vars(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def load(cls, data: bytes) -> "CandidateReport":
        """Read the bytes of `dump`; ValueError if they are invalid."""
        try:
            fields = json.loads(data)
        except RecursionError as error:
            raise ValueError("the report of a candidate has nested values") from error
        if not isinstance(fields, dict):
            raise ValueError("the report of a candidate is a JSON object")  # noqa: TRY004 - as for JSON that is damaged
        known = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
        known.setdefault("problem", "")
        for name in TEXTS:
            if not isinstance(known.get(name), str):
                raise ValueError(f"{name} is not a text in the report of a candidate")  # noqa: TRY004
        for name in WHOLE:
            if not _is_whole(known.get(name)):
                raise ValueError(f"{name} is not a number of its range in the report of a candidate")
        if not _is_number(known.setdefault("cpu_seconds", 0.0)) or known["cpu_seconds"] < 0:
            raise ValueError("cpu_seconds is not a number of its range in the report of a candidate")
        rows = known.setdefault("differences", [])
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            raise ValueError("a difference lacks a field, or one has a wrong value")
        return cls(**known)


TEXTS = ("fleet", "shard", "candidate", "id", "problem")
WHOLE = ("since_ns", "sent_ns", "seen", "unseen")
WORDS = {"level": {level.word for level in Level}, "which": {"inForce", "candidate"}}


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < LATEST_NS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max  # not NaN either


def _is_term(term: Any) -> bool:
    return (
        isinstance(term, list)
        and len(term) == len(MEASURED)
        and all(_is_number(value) if kind is float else isinstance(value, str)
                for value, kind in zip(term, MEASURED, strict=True))
    )  # fmt: skip


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in DifferenceRow.__annotations__.keys() - {"atNs", "terms"})
        and all(row[name] in words for name, words in WORDS.items())
        and _is_whole(row.get("atNs"))
        and isinstance(row.get("terms"), list)
        and all(map(_is_term, row["terms"]))
    )
