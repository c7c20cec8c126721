"""The diary of a run: a timeline of steps, commands, cluster events and alarms, and the run's numbers.

One diary is shared by everything in a run. `note` writes a line to disk at once, so the timeline is complete even if
the run is killed. `step` wraps a part of a test, and prints its result as a progress line. `measure` records a number
with its limit; the caller asserts it. `close` writes numbers and steps as one JSON file.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

Level = Literal["info", "good", "bad"]


@dataclass(frozen=True)
class Entry:
    """A line of the timeline."""

    time_ns: int  # nanoseconds since the Unix epoch
    source: str  # "step", "kubectl", "event", "alarm", …
    text: str
    level: Level = "info"


@dataclass(frozen=True)
class Number:
    """A measured value."""

    name: str
    value: float
    unit: str
    limit: float | None = None  # allowed maximum

    @property
    def within(self) -> bool:
        """True if the value is within its limit, or has none."""
        return self.limit is None or self.value <= self.limit

    def text(self) -> str:
        """The value and its unit, for people."""
        return f"{self.value:,.0f} {self.unit}" if self.value == int(self.value) else f"{self.value:,.2f} {self.unit}"


@dataclass
class Step:
    """A step of a test."""

    title: str
    started_ns: int = field(default_factory=time.time_ns)
    ended_ns: int = 0
    error: str = ""
    remarks: list[str] = field(default_factory=list)

    def add_remark(self, text: str) -> None:
        """Add `text` to the step's progress line."""
        self.remarks.append(text)

    @property
    def seconds(self) -> float:
        """The step's duration so far."""
        return ((self.ended_ns or time.time_ns()) - self.started_ns) / 1e9


class Diary:
    """The records of a run in a folder. Every entry is written to disk at once."""

    def __init__(self, folder: Path, print_line: Callable[[str], None]) -> None:
        """`print_line` prints a progress line."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.started_ns = time.time_ns()
        self.entries: list[Entry] = []
        self.steps: list[Step] = []
        self.numbers: list[Number] = []
        self._print_line = print_line
        self._last: dict[str, str] = {}
        self._file = (folder / "diary.jsonl").open("a", encoding="utf-8")

    def note(self, source: str, text: str, level: Level = "info", time_ns: int = 0) -> None:
        """Add a line to the timeline. Pass `time_ns` for something that happened earlier."""
        entry = Entry(time_ns or time.time_ns(), source, text, level)
        self.entries.append(entry)
        self._file.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")
        self._file.flush()

    def note_change(self, source: str, text: str) -> None:
        """Add a line unless it repeats the last line of the same source, for repeated attempts."""
        if self._last.get(source) != text:
            self._last[source] = text
            self.note(source, text)

    def print_line(self, line: str) -> None:
        """Print a progress line."""
        self._print_line(line)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Record a step around the block, and print its result as a progress line."""
        step = Step(title)
        self.steps.append(step)
        self.note("step", f"{title} starts")
        try:
            yield step
        except BaseException as error:
            step.error = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise
        finally:
            step.ended_ns = time.time_ns()
            self.note("step", f"{title}: {step.error or 'done'}", "bad" if step.error else "good")
            remarks = "; ".join(step.remarks)
            mark = "FAILED" if step.error else "ok"
            suffix = f"  {remarks}" if remarks else ""
            self._print_line(f"  {len(self.steps):2} {title:<44} {step.seconds:6.1f} s  {mark}{suffix}")

    def measure(self, name: str, value: float, unit: str, limit: float | None = None) -> Number:
        """Record a number. If it has a limit, the caller asserts `within`."""
        number = Number(name, value, unit, limit)
        self.numbers.append(number)
        bound = "" if limit is None else f", at most {limit:g} allowed"
        self.note("number", f"{name}: {number.text()}{bound}", "info" if number.within else "bad")
        return number

    def table(self) -> list[str]:
        """The numbers as the lines of a table."""
        rows = [
            (n.name, n.text(), "" if n.limit is None else f"≤ {n.limit:g}", "" if n.within else "EXCEEDED")
            for n in self.numbers
        ]
        width = max((len(row[0]) for row in rows), default=0)
        return [f"  {name:<{width}}  {value:>14}  {limit:<8}  {mark}".rstrip() for name, value, limit, mark in rows]

    def close(self) -> None:
        """Write numbers.json and close the diary."""
        document = {
            "began": stamp(self.started_ns),
            "seconds": round((time.time_ns() - self.started_ns) / 1e9, 1),
            "passed": not any(step.error for step in self.steps),
            "numbers": [asdict(number) for number in self.numbers],
            "steps": [{"title": s.title, "seconds": round(s.seconds, 2), "error": s.error} for s in self.steps],
        }
        (self.folder / "numbers.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        self._file.close()


def stamp(time_ns: int) -> str:
    """Format a time as UTC, to the millisecond."""
    return datetime.fromtimestamp(time_ns / 1e9, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]
