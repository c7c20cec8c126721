"""The operators' writes: the fields that each changed, and the fault that caused it.

`Changes` compares each status of a fleet with the one before, by the audit log. `count_writes` gives every write to one
fault: the last that began before it, if its consequences may still last. Writes for a burst belong to the burst.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from embereye_operator.decide.status import OBSERVED_SECONDS, nanoseconds
from embereye_operator.runtime.kubernetes.guard import RENEW
from harness.cluster.books import Books
from harness.cluster.faults import FAULTS
from harness.cluster.soak_site import SURGE

BURST = "burst"
REST_SECONDS = 120.0  # time after a fault in which its consequences may last
FLEETS = 3  # of a run with bursts
JUDGED_FAULTS = (
    4  # the least number of faults with a mean that is judged: one that moves devices writes more than others
)
NUMBERS = frozenset({"lastObserved", "load", "ledger"})  # fields of a status that are renewed although nothing changed
ROUNDED = 1.0  # seconds by which the difference of two times in whole seconds may be off


class Changes:
    """The latest status of each fleet, by its resource and name."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._renewed: dict[str, int] = {}  # a Job that deletes budgets → when it was last written, in nanoseconds

    def note(self, resource: str, name: str, status: Mapping[str, Any]) -> None:
        """Learn a fleet's present status."""
        self._known[resource, name] = status

    def describe(self, request: Mapping[str, Any]) -> tuple[str, bool]:
        """The fields that a request of the audit log changed, and if it only shows that the operator lives.

        ("", False) for an object of which the audit log has no content.
        """
        target = request.get("objectRef", {})
        if target.get("resource") == "jobs":
            return "", self._is_renewal(target.get("name", ""), request)
        content = request.get("requestObject")
        if target.get("subresource") != "status" or not isinstance(content, dict) or "status" not in content:
            return "", False  # a JSON patch is a list
        status = content["status"]
        place = (target["resource"], target.get("name", ""))
        before, self._known[place] = self._known.get(place, {}), status
        fields = {name for name in {*before, *status} if before.get(name) != status.get(name)}
        seen = [nanoseconds(entry.get("lastObserved", "")) / 1e9 for entry in (before, status)]
        is_alive = bool(before) and fields <= NUMBERS and seen[1] - seen[0] >= OBSERVED_SECONDS - ROUNDED
        return ", ".join(sorted(_described(fields, before, status))), is_alive

    def _is_renewal(self, name: str, request: Mapping[str, Any]) -> bool:
        """True if the Job `name`, which deletes budgets after the operator's end, was written no sooner than due."""
        now = nanoseconds(request.get("requestReceivedTimestamp", ""))
        before, self._renewed[name] = self._renewed.get(name, 0), now
        return (now - before) / 1e9 >= RENEW - ROUNDED


def _described(fields: set[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The names of `fields` with their values, for conditions those that changed, without the time."""
    yield from fields - {"conditions", "lastObserved", "devices", "load", "ledger"}
    yield from fields & {"load", "ledger"}
    if "devices" in fields:
        yield f"devices {now.get('devices', {}).get('summary', '')}"
    known = {entry["type"]: entry for entry in before.get("conditions", ())}
    for entry in now.get("conditions", ()):
        was = known.get(entry["type"], {})
        if (was.get("status"), was.get("reason")) != (entry["status"], entry["reason"]):
            yield f"{entry['type']}={entry['status']} {entry['reason']}"
        elif was.get("message") != entry.get("message"):
            yield f"{entry['type']} message"


def fault_spans(books: Books, *, bursts: bool = True) -> Iterator[tuple[str, float, float]]:
    """Yield the event, the begin and the end of each fault, in seconds of soaking. A cut one ends with its piece.

    `bursts`: of each burst of load, too.
    """
    entries = books.entries
    for number, entry in enumerate(entries):
        if entry["kind"] == "harm" and (bursts or entry["event"] != BURST):
            later = [other for other in entries[number + 1 :] if other["kind"] in {"fault", BURST, "piece", "harm"}]
            end = later[0]["at"] + later[0].get("seconds", 0.0) if later else books.reached
            yield entry["event"], entry["at"], end


def count_writes(books: Books) -> list[tuple[str, int]]:
    """Each fault of the run, with the number of the operators' writes that it caused."""
    spans = sorted(fault_spans(books), key=lambda span: span[1])
    counts = [0] * len(spans)
    for write in books.of("write"):
        of_burst = str(write.get("name", "")).startswith(SURGE)
        for number in range(len(spans) - 1, -1, -1):
            event, begin, end = spans[number]
            if event == BURST and not of_burst:
                continue  # a burst changes only its own fleet
            if begin <= write["at"]:
                counts[number] += write["at"] <= end + REST_SECONDS
                break
    return [(event, count) for (event, _, _), count in zip(spans, counts, strict=True) if event != BURST]


def allowed_writes(event: str) -> float:
    """The number of the operators' writes, for each fleet, that a fault or a pair may cause on average."""
    return sum(FAULTS[name].writes for name in event.split(" and "))


def mean_writes(books: Books) -> float:
    """The operators' writes for a fault and fleet, on average."""
    counts = [count for _, count in count_writes(books)]
    return sum(counts) / len(counts) / FLEETS if counts else 0.0


def mean_allowed(books: Books) -> float:
    """The mean of `allowed_writes` over the faults of the run."""
    allowed = [allowed_writes(event) for event, _ in count_writes(books)]
    return sum(allowed) / len(allowed) if allowed else 3.0


def judge_writes(books: Books) -> list[str]:
    """The problem that the operators write more in faults than these allow on average, if they do."""
    mean, allowed = mean_writes(books), mean_allowed(books)
    if mean <= allowed or len(count_writes(books)) < JUDGED_FAULTS:
        return []
    return [f"the operators wrote {mean:.1f} times for a fault and fleet, more than {allowed:.3g}"]
