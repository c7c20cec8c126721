"""What `embereye up` shows: a live table on a terminal, plain lines elsewhere."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from embereye.process.telemetry.logs import visible

logger = logging.getLogger(__name__)
EVENTS = 12  # that are kept under the tables
EVENT_ROWS = 6  # of a screen that tables alone would fill
STYLES = {
    "normal": "green",
    "pre-alarm": "yellow",
    "alarm": "bold white on red",
    "acknowledged": "magenta",
    "restored": "cyan",
    "covered": "green",
    "awaiting": "yellow",
    "dark": "bold red",
}


@dataclass(frozen=True)
class FleetRow:
    """One fleet as a person asks for it."""

    name: str
    ready: str  # "2/2"
    covered: str  # "4/4"
    up: bool  # all its shards work under the current manifest
    well: bool  # every declared device is covered
    why: str
    awaiting: bool = False  # it is new, and its devices still have time to say their first word


@dataclass(frozen=True)
class ZoneRow:
    """One zone as a person asks for it."""

    name: str
    state: str
    covered: str
    why: str


class Display(Protocol):
    """Where `embereye up` tells what happens."""

    def say(self, text: str, *, style: str = "") -> None:
        """Tell one thing that happened."""
        ...

    def keep(self, text: str) -> None:
        """Tell what somebody needs later, and leave it in sight."""
        ...

    def show(self, fleets: Sequence[FleetRow], zones: Sequence[ZoneRow]) -> None:
        """Show how things stand."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class _Output:
    """A stream that ends nobody who writes to it: what it does not take is lost, which is logged once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = False

    def write(self, text: str) -> int:
        """Write `text`, where it is taken."""
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written, where it is taken."""
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._told:
                logger.warning(
                    "the output cannot be written (%s): what happens is not told there; fleets are watched as before",
                    error.strerror,
                )
            self._told = True


class Lines:
    """One line per event and per change of a fleet's or zone's state."""

    def __init__(self, stream: TextIO | None = None) -> None:
        output: Any = _Output(stream or sys.stdout)
        self._console = Console(file=output, highlight=False, soft_wrap=True)
        self._last: dict[str, tuple[str, ...]] = {}

    def say(self, text: str, *, style: str = "") -> None:
        """Print one line with the local time."""
        self._console.print(Text(_now(text), style=style))

    def keep(self, text: str) -> None:
        """Print one line: they all stay."""
        self.say(text)

    def show(self, fleets: Sequence[FleetRow], zones: Sequence[ZoneRow]) -> None:
        """Print what changed since the last call."""
        for fleet in fleets:
            if fleet.name not in self._last and (fleet.awaiting or not fleet.up):
                continue  # it is only starting
            if self._last.get(fleet.name) != (fleet.ready, fleet.covered):
                self._last[fleet.name] = (fleet.ready, fleet.covered)
                why = "" if fleet.well else f": {fleet.why}"
                self.say(f"{fleet.name}: {fleet.ready} shards ready, {fleet.covered} devices covered{why}")

    def close(self) -> None:
        """Nothing to restore."""


def _now(text: str) -> str:
    """A line, with the local time."""
    return f"{time.strftime('%H:%M:%S')}  {visible(text)}"


def is_steerable(stream: TextIO) -> bool:
    """Whether `stream` is a terminal on which a table can stay in place: one that is dumb would show it at the end."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal


class _Screen:
    """As much as a terminal has room for: events from the newest back, since rich alone would cut just these off."""

    def __init__(self, header: Sequence[str]) -> None:
        # Replaced, never changed: rich draws from a thread of its own.
        self.header = tuple(Text(line, style="bold") for line in header)
        self.events: tuple[Text, ...] = ()
        self.tables: tuple[Table, ...] = ()

    @property
    def whole(self) -> Group:
        """All of it, however long."""
        return Group(self._above, *self.events)

    @property
    def _above(self) -> Group:
        return Group(*self.header, *self.tables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        above = console.render_lines(self._above, options, pad=False)
        height = options.size.height
        room = max(height - len(above), min(EVENT_ROWS, height // 2))
        below: list[list[Segment]] = []
        for event in reversed(self.events):
            lines = console.render_lines(event, options, pad=False)
            if below and len(below) + len(lines) > room:
                break
            below = [*lines[:room], *below]
        if len(above) + len(below) > height:
            cut = console.render_lines(Text("… a larger window shows more"), options, pad=False)[:1]
            above = above[: max(0, height - len(below) - 1)] + cut
        for line in (above + below)[-height:]:
            yield from line
            yield Segment.line()


class LiveTable:
    """A table that stays in place, with the latest events under it."""

    def __init__(self, header: Sequence[str]) -> None:
        self._screen = _Screen(header)
        output: Any = _Output(sys.stdout)
        self._live = Live(self._screen, console=Console(file=output), refresh_per_second=4, transient=False)
        self._live.start()

    def say(self, text: str, *, style: str = "") -> None:
        """Add one event under the table."""
        self._screen.events = (*self._screen.events, Text(_now(text), style=style))[-EVENTS:]

    def keep(self, text: str) -> None:
        """Add one line above the tables: events would push it away."""
        self._screen.header = (*self._screen.header, Text(_now(text)))

    def show(self, fleets: Sequence[FleetRow], zones: Sequence[ZoneRow]) -> None:
        """Replace the tables."""
        table = Table("fleet", "shards", "covered", "", title=None, expand=True)
        for fleet in fleets:
            style = STYLES["covered" if fleet.well else "awaiting" if fleet.awaiting else "dark"]
            table.add_row(fleet.name, fleet.ready, Text(fleet.covered, style=style), Text(visible(fleet.why)))
        states = Table("zone", "state", "covered", "", expand=True)
        for zone in zones:
            state = Text(zone.state, style=STYLES.get(zone.state, ""))
            states.add_row(Text(visible(zone.name)), state, zone.covered, Text(visible(zone.why)))
        self._screen.tables = (table, states)

    def close(self) -> None:
        """Leave the last table on the screen, with all its events."""
        self._live.update(self._screen.whole)
        self._live.stop()
