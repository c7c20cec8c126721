"""Count and judge a load test: packets, bytes, errors, latencies with their percentiles; thresholds.

Each client counts in a separate `ClientFigures`; `total` adds them up, and `judge` compares the sum with `Thresholds`.
Latencies are counted in buckets whose bounds grow by 5 %, so a test of any length needs the same memory.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

STEP = 1.05  # ratio of a bucket's bounds; a percentile is at most this much too high
SMALLEST = 1e-6  # seconds; shorter durations are counted as this
SHARES = (0.5, 0.95, 0.99)


class Latencies:
    """Durations in seconds, in buckets of 5 %: memory is constant, and sums are exact."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # seconds
        self.most = 0.0  # seconds
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)
        self._buckets[max(0, math.ceil(math.log(max(seconds, SMALLEST) / SMALLEST, STEP)))] += 1

    def merge(self, other: "Latencies") -> None:
        """Add the counts of `other`."""
        self.count += other.count
        self.total += other.total
        self.most = max(self.most, other.most)
        self._buckets.update(other._buckets)

    @property
    def mean(self) -> float:
        """Seconds; 0 without durations."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """Seconds that `share` 0..1 of the durations do not exceed, at most 5 % too high; 0 without durations."""
        wanted, seen = max(1, math.ceil(share * self.count)), 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            if seen >= wanted:
                return min(SMALLEST * STEP**bucket, self.most)
        return 0.0

    def histogram(self) -> list[dict[str, float]]:
        """The number of durations up to each bound in milliseconds: not cumulative, 1-2-5 bounds, no empty ones."""
        counts: Counter[float] = Counter()
        for bucket, count in self._buckets.items():
            counts[_round_bound(SMALLEST * STEP**bucket)] += count
        return [{"upToMs": bound, "count": count} for bound, count in sorted(counts.items())]

    def to_json(self) -> dict[str, Any]:
        """Summarize the durations, in milliseconds."""
        named = {f"p{share * 100:g}": _ms(self.percentile(share)) for share in SHARES}
        return {"count": self.count, "avg": _ms(self.mean), **named, "max": _ms(self.most)}


def _round_bound(seconds: float) -> float:
    milliseconds = seconds * 1e3
    decade = 10.0 ** math.floor(math.log10(milliseconds))
    return float(f"{next(decade * step for step in (1, 2, 5, 10) if milliseconds <= decade * step * 1.001):.6g}")


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 4)


def rounded(value: float) -> str:
    """Format with three significant digits, without an exponent: 0.0123, 12.3, 1,230."""
    return f"{float(f'{value:.3g}'):,.10g}"


@dataclass
class ClientFigures:
    """The counts of one client."""

    id: str
    packets: int = 0  # sent
    sent_bytes: int = 0
    acknowledged: int = 0  # packets analysed, if the protocol acknowledges them
    shed: int = 0  # frames that the shard replaced by newer ones
    skipped: int = 0  # frames not sent because the shard accepted none
    connections: int = 0
    began: float = 0.0  # due time of its first packet, monotonic seconds; 0: not yet
    last_sent: float = 0.0  # monotonic seconds
    errors: Counter[str] = field(default_factory=Counter)  # by reason
    latencies: Latencies = field(default_factory=Latencies)

    def count_sent(self, size: int) -> None:
        """Count a packet of `size` bytes that was just sent."""
        self.packets += 1
        self.sent_bytes += size
        self.last_sent = time.monotonic()
        self.began = self.began or self.last_sent

    def due(self, wanted: float, packets: int, now: float) -> int:
        """The packets due by `now` at `wanted`/s, at most `packets`; 0: unlimited."""
        passed = int((now - self.began) * wanted) if self.began else 0
        return max(self.packets, min(passed, packets) if packets else passed)

    def rate(self, wanted: float, due: int) -> float:
        """Packets/s over the time scheduled for `due` packets at `wanted`/s, or the actual time if it was longer."""
        return self.packets / max(due / wanted, self.last_sent - self.began) if self.packets else 0.0

    def to_json(self, rate: float, due: int) -> dict[str, Any]:
        """Convert to the report's form; `rate` is in packets/s, of `due` packets."""
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
    """Add up all clients."""
    whole = ClientFigures("")
    for client in clients:
        whole.packets += client.packets
        whole.sent_bytes += client.sent_bytes
        whole.acknowledged += client.acknowledged
        whole.shed += client.shed
        whole.skipped += client.skipped
        whole.connections += client.connections
        whole.errors.update(client.errors)
        whole.latencies.merge(client.latencies)
    return whole


@dataclass(frozen=True)
class Thresholds:
    """The requirements of a load test; None: not required."""

    max_errors: int | None = 0
    min_rate: float | None = 0.95  # share of the scheduled packets/s
    max_p95: float | None = None  # seconds
    max_p99: float | None = None  # seconds


@dataclass(frozen=True)
class Check:
    """The result of one threshold."""

    name: str
    limit: str
    value: str
    ok: bool


def judge(whole: ClientFigures, *, achieved: float, wanted: float, thresholds: Thresholds) -> list[Check]:
    """Check all thresholds; `achieved` and `wanted` are packets/s of all clients, 0: no rate required."""
    checks: list[Check] = []
    if thresholds.max_errors is not None:
        errors = whole.errors.total()
        checks.append(Check("errors", f"≤ {thresholds.max_errors}", str(errors), errors <= thresholds.max_errors))
    if thresholds.min_rate is not None and wanted:
        least = thresholds.min_rate * wanted
        checks.append(Check("packets/s", f"≥ {least:.1f}", f"{achieved:.1f}", achieved >= least))
    for name, share, limit in (("p95", 0.95, thresholds.max_p95), ("p99", 0.99, thresholds.max_p99)):
        if limit is not None:
            value = whole.latencies.percentile(share)
            # Without measurements, a latency is not known to be low.
            known = whole.latencies.count > 0
            shown = f"{rounded(value * 1e3)} ms" if known else "not measured"
            checks.append(Check(f"latency {name}", f"≤ {limit * 1e3:g} ms", shown, known and value <= limit))
    return checks
