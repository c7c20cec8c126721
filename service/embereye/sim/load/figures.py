"""What a load test counts: packets, bytes, errors, latencies with their percentiles; and what it demands of them."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

STEP = 1.05  # a bucket's upper bound over its lower one: a percentile is at most this far above the truth
SMALLEST = 1e-6  # seconds; what is less is counted here
SHARES = (0.5, 0.95, 0.99)


class Latencies:
    """Durations in seconds, in buckets of 5 %: any number of them takes the same memory, and sums are exact."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # seconds
        self.most = 0.0  # seconds
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)
        self._buckets[max(0, math.ceil(math.log(max(seconds, SMALLEST) / SMALLEST, STEP)))] += 1

    def merge(self, other: "Latencies") -> None:
        """Count what `other` has counted."""
        self.count += other.count
        self.total += other.total
        self.most = max(self.most, other.most)
        self._buckets.update(other._buckets)

    @property
    def mean(self) -> float:
        """Seconds; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """Seconds that `share` 0..1 of them do not exceed, at most 5 % too high; 0 of nothing."""
        wanted, seen = max(1, math.ceil(share * self.count)), 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            if seen >= wanted:
                return min(SMALLEST * STEP**bucket, self.most)
        return 0.0

    def histogram(self) -> list[dict[str, float]]:
        """How many there are up to each bound in milliseconds, not cumulative, 1-2-5 bounds, empty ones left out."""
        counts: Counter[float] = Counter()
        for bucket, count in self._buckets.items():
            counts[_round_bound(SMALLEST * STEP**bucket)] += count
        return [{"upToMs": bound, "count": count} for bound, count in sorted(counts.items())]

    def to_json(self) -> dict[str, Any]:
        """In milliseconds."""
        named = {f"p{share * 100:g}": _ms(self.percentile(share)) for share in SHARES}
        return {"count": self.count, "avg": _ms(self.mean), **named, "max": _ms(self.most)}


def _round_bound(seconds: float) -> float:
    milliseconds = seconds * 1e3
    decade = 10.0 ** math.floor(math.log10(milliseconds))
    return float(f"{next(decade * step for step in (1, 2, 5, 10) if milliseconds <= decade * step * 1.001):.6g}")


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 4)


def rounded(value: float) -> str:
    """To three digits that count, without an exponent: 0.0123, 12.3, 1,230."""
    return f"{float(f'{value:.3g}'):,.10g}"


@dataclass
class ClientFigures:
    """What one client did."""

    id: str
    packets: int = 0  # that were sent
    sent_bytes: int = 0
    acknowledged: int = 0  # packets that were analysed, where the protocol says so
    shed: int = 0  # frames that the shard replaced by newer ones
    skipped: int = 0  # frames that were not sent since the shard took none
    connections: int = 0
    began: float = 0.0  # when its first packet was due, monotonic seconds; 0: not yet
    last_sent: float = 0.0  # monotonic seconds
    errors: Counter[str] = field(default_factory=Counter)  # by what went wrong
    latencies: Latencies = field(default_factory=Latencies)

    def sent(self, size: int) -> None:
        """Count a packet of `size` bytes that has just been sent."""
        self.packets += 1
        self.sent_bytes += size
        self.last_sent = time.monotonic()
        self.began = self.began or self.last_sent

    def due(self, wanted: float, packets: int, now: float) -> int:
        """Packets that it was to send by `now` at `wanted`/s, `packets` at most; 0: without end."""
        passed = int((now - self.began) * wanted) if self.began else 0
        return max(self.packets, min(passed, packets) if packets else passed)

    def rate(self, wanted: float, due: int) -> float:
        """Packets/s over the time in which `due` were to be sent at `wanted`/s, or all that it took to send them."""
        return self.packets / max(due / wanted, self.last_sent - self.began) if self.packets else 0.0

    def to_json(self, rate: float, due: int) -> dict[str, Any]:
        """As the report has it; `rate` is how many packets it sent in a second, of `due`."""
        return {
            "id": self.id,
            "packets": self.packets,
            "due": due,
            "bytes": self.sent_bytes,
            "acknowledged": self.acknowledged,
            "shed": self.shed,
            "skipped": self.skipped,
            "connections": self.connections,
            "errors": self.errors.total(),
            "errorsByReason": dict(self.errors),
            "packetsPerSecond": round(rate, 3),
            "latencyMs": self.latencies.to_json(),
            "histogram": self.latencies.histogram(),
        }


def total(clients: Sequence[ClientFigures]) -> ClientFigures:
    """All clients as one."""
    found = ClientFigures("")
    for client in clients:
        found.packets += client.packets
        found.sent_bytes += client.sent_bytes
        found.acknowledged += client.acknowledged
        found.shed += client.shed
        found.skipped += client.skipped
        found.connections += client.connections
        found.errors.update(client.errors)
        found.latencies.merge(client.latencies)
    return found


@dataclass(frozen=True)
class Thresholds:
    """What a load test has to keep; what is None is not demanded."""

    max_errors: int | None = 0
    min_rate: float | None = 0.95  # of the packets/s that were to be sent
    max_p95: float | None = None  # seconds
    max_p99: float | None = None  # seconds


@dataclass(frozen=True)
class Check:
    """One threshold, and whether it was kept."""

    name: str
    limit: str
    value: str
    ok: bool


def judge(found: ClientFigures, *, achieved: float, wanted: float, thresholds: Thresholds) -> list[Check]:
    """Whether everything demanded was kept; `achieved` and `wanted` are packets/s of all clients, 0: no rate wanted."""
    checks: list[Check] = []
    if thresholds.max_errors is not None:
        errors = found.errors.total()
        checks.append(Check("errors", f"≤ {thresholds.max_errors}", str(errors), errors <= thresholds.max_errors))
    if thresholds.min_rate is not None and wanted:
        least = thresholds.min_rate * wanted
        checks.append(Check("packets/s", f"≥ {least:.1f}", f"{achieved:.1f}", achieved >= least))
    for name, share, limit in (("p95", 0.95, thresholds.max_p95), ("p99", 0.99, thresholds.max_p99)):
        if limit is not None:
            value = found.latencies.percentile(share)
            # Of no latency at all nobody can say that it was low.
            known = found.latencies.count > 0
            told = f"{rounded(value * 1e3)} ms" if known else "not measured"
            checks.append(Check(f"latency {name}", f"≤ {limit * 1e3:g} ms", told, known and value <= limit))
    return checks
