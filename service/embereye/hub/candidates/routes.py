"""The route of the differences between candidates and the detection in force."""

import time

from aiohttp import web

from embereye.hub.candidates.keeper import Candidates, Compared
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.clips import listed_clip
from embereye.hub.http.openapi.parts import NANOSECONDS, WORD, Json, answer, list_of, query, record, reference, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.past import TIME
from embereye.hub.http.route import Route
from embereye.hub.http.terms import REAL, TERM, term_of
from embereye.hub.quality import SPAN_NS
from embereye.hub.roles import Role
from embereye.hub.tables.candidate_differences import StoredDifference
from embereye.v1.clips_pb2 import Clip

MAX_DIFFERENCES = 1_000
DIFFERENCE = record(
    {
        "id": WORD, "fleet": WORD, "candidate": WORD, "comparison": WORD, "device": WORD, "zone": WORD, "kind": WORD,
        "level": WORD,
        "which": {"type": "string", "enum": ["inForce", "candidate"], "description": "the side that raised it"},
        "atNs": NANOSECONDS, "terms": list_of(TERM), "clips": list_of(reference("ListedClip")),
    }
)  # fmt: skip
COMPARED = record(
    {
        "fleet": WORD, "candidate": WORD, "comparison": {**WORD, "description": "changes with the settings"},
        "sinceNs": NANOSECONDS, "seen": whole(),
        "unseen": {**whole(), "description": "readings or frames that it did not judge, because a shard was busy"},
        "cpuSeconds": REAL,
        "problem": {**WORD, "description": "why it cannot judge, with the device; empty: it can"},
    }
)  # fmt: skip


class CandidateRoutes:
    """Serves the differences."""

    def __init__(self, candidates: Candidates, clips: ClipStore | None) -> None:
        self._candidates = candidates
        self._clips = clips

    @Route(
        "GET", "/v1/detection/differences", Role.VIEWER,
        "Alarms and pre-alarms that only a candidate, or only the detection in force, raised",
        {
            200: answer(
                "the candidates that are being compared, and the newest differences, with their clips",
                record(
                    {
                        "candidates": list_of(COMPARED), "differences": list_of(DIFFERENCE),
                        "truncated": {"type": "boolean", "description": "there are more in this time"},
                    }
                ),
            )
        },
        takes=[
            query("from", whole(), f"{TIME}; missing: 30 days before `until`"),
            query("until", whole(), f"{TIME}; 0: now"),
        ],
        fails=(400, 503),
        scoped=True,
    )  # fmt: skip
    async def _differences(self, request: web.Request) -> web.Response:
        scope = request[PRINCIPAL].scope
        now_ns = time.time_ns()
        until_ns = min(number_of(request, "until", 0) or now_ns, now_ns)
        from_ns = min(number_of(request, "from", max(0, until_ns - SPAN_NS)), until_ns)
        stored = await self._candidates.differences(from_ns, until_ns, MAX_DIFFERENCES)
        shown = [row for row in stored if scope.has_device(row.fleet, row.zone)]
        clips: dict[str, list[Clip]] = {}
        if self._clips is not None and shown:
            for clip in await self._clips.of_episodes(row.episode for row in shown):
                clips.setdefault(clip.episode, []).append(clip)
        body = {
            # Their counts are those of all zones.
            "candidates": [] if scope.is_limited else list(map(_compared, self._candidates.compared())),
            "differences": [_listed(row, clips.get(row.episode, [])) for row in shown],
            "truncated": len(stored) == MAX_DIFFERENCES,
        }
        return web.json_response(body)


def _compared(entry: Compared) -> Json:
    return {
        "fleet": entry.fleet, "candidate": entry.name, "comparison": entry.id, "sinceNs": str(entry.since_ns),
        "seen": entry.seen, "unseen": entry.unseen, "cpuSeconds": entry.cpu_seconds,
        "problem": entry.problem,
    }  # fmt: skip


def _listed(row: StoredDifference, clips: list[Clip]) -> Json:
    return {
        "id": row.id, "fleet": row.fleet, "candidate": row.candidate, "comparison": row.comparison,
        "device": row.device, "zone": row.zone, "kind": row.kind, "level": row.level, "which": row.side,
        "atNs": str(row.at_ns), "clips": [listed_clip(clip) for clip in clips],
        "terms": list(map(term_of, row.terms)),
    }  # fmt: skip
