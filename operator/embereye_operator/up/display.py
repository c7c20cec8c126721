"""The output of `embereye up`: a live table on a terminal, plain lines elsewhere.

`Up` calls `show` with rows for fleets and zones every half second, and `say` for events. `Lines` prints only what has
changed since the last call. `LiveTable` replaces its tables and lets rich redraw them from a thread, so its parts are
replaced, never modified. An output that cannot be written is lost and logged once: it must not end the watch.
"""

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

from embereye.process.condition import Condition
from embereye.process.telemetry.logs import visible

logger = logging.getLogger(__name__)
EVENTS = 12  # events shown below the tables
EVENT_ROWS = 6  # rows for events on a screen that the tables would fill
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
    """The displayed state of one fleet."""

    name: str
    ready: str  # "2/2"
    covered: str  # "4/4"
    up: bool  # all its shards follow the current manifest
    well: bool  # every declared device is covered
    why: str
    awaiting: bool = False  # it is new, and its devices may still send their first data


@dataclass(frozen=True)
class ZoneRow:
    """The displayed state of one zone."""

    name: str
    state: str
    covered: str
    why: str


class Display(Protocol):
    """The output of `embereye up`."""

    def say(self, text: str, *, style: str = "") -> None:
        """Print an event."""

    def pin(self, text: str) -> None:
        """Print a line that stays visible, because somebody needs it later."""

    def show(self, fleets: Sequence[FleetRow], zones: Sequence[ZoneRow]) -> None:
        """Show the present state."""

    def close(self) -> None:
        """Restore the terminal."""


class _Output:
    """A stream whose errors do not end its writer: what cannot be written is lost, which is logged once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._failing = Condition(logger, first_only=True)

    def write(self, text: str) -> int:
        """Write `text` if possible."""
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if possible."""
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            sentence = "cannot write the output (%s). Events are not shown there, but fleets are watched as before"
            self._failing.fail(str(error), sentence, error.strerror)


class Lines:
    """One line per event and per change of a fleet's or zone's state."""

    def __init__(self, stream: TextIO | None = None) -> None:
        output: Any = _Output(stream or sys.stdout)
        self._console = Console(file=output, highlight=False, soft_wrap=True)
        self._last: dict[str, tuple[str, ...]] = {}

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line with the local time."""
        self._console.print(Text(_now(text), style=style))

    def pin(self, text: str) -> None:
        """Print a line: all lines stay."""
        self.say(text)

    def show(self, fleets: Sequence[FleetRow], zones: Sequence[ZoneRow]) -> None:
        """Print the changes since the last call."""
        for fleet in fleets:
            if fleet.name not in self._last and (fleet.awaiting or not fleet.up):
                continue  # it is still starting
            if self._last.get(fleet.name) != (fleet.ready, fleet.covered):
                self._last[fleet.name] = (fleet.ready, fleet.covered)
                why = "" if fleet.well else f": {fleet.why}"
                self.say(f"{fleet.name}: {fleet.ready} shards ready, {fleet.covered} devices covered{why}")

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


def _now(text: str) -> str:
    """Return a line with the local time."""
    return f"{time.strftime('%H:%M:%S')}  {visible(text)}"


def is_steerable(stream: TextIO) -> bool:
    """True if `stream` is a terminal that can redraw a table in place; a dumb one cannot."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal


class _Screen:
    """The part of the output that fits on a terminal: the newest events, which rich alone would cut off."""

    def __init__(self, header: Sequence[str]) -> None:
        # Replaced, never changed: rich draws from another thread.
        self.header = tuple(Text(line, style="bold") for line in header)
        self.events: tuple[Text, ...] = ()
        self.tables: tuple[Table, ...] = ()

    @property
    def whole(self) -> Group:
        """Return the complete output, of any length."""
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
    """A table that stays in place, with the latest events below it."""

    def __init__(self, header: Sequence[str]) -> None:
        self._screen = _Screen(header)
        output: Any = _Output(sys.stdout)
        self._live = Live(self._screen, console=Console(file=output), refresh_per_second=4, transient=False)
        self._live.start()

    def say(self, text: str, *, style: str = "") -> None:
        """Add an event below the table."""
        self._screen.events = (*self._screen.events, Text(_now(text), style=style))[-EVENTS:]

    def pin(self, text: str) -> None:
        """Add a line above the tables, where no event displaces it."""
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
        """Leave the last table with all its events on the screen."""
        self._live.update(self._screen.whole)
        self._live.stop()
