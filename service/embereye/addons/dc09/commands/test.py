"""Send a supervision message to each receiver of the stations in a DC-09 file, and show the answers.

It raises no alarm: a supervision message (NULL) only proves that the receiver can be reached, knows the account, and
has the same key and nearly the same time.
"""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.text import Text

from embereye.addons.dc09.options import OPTION, Receiver, StationOptions, read_dc09, read_key
from embereye.process.extras import needed_by
from embereye.process.lifecycle import CheckFailedError, UserError
from embereye.units import SECOND
from embereye_cli.declared import chosen
from embereye_cli.options import Option
from embereye_cli.terminal import print_json, print_table


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("stations", nargs="*", metavar="STATION", help="names of stations; default: all")
    Option(OPTION, "the file of the hub; required", type=Path, metavar="FILE").add_to(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each receiver")


def run(arguments: Namespace) -> int:
    """Ask each receiver; CheckFailedError if one does not acknowledge."""
    if arguments.dc09 is None:
        raise UserError(f"{OPTION} is missing. Name the file of the hub.")
    known = {station.name: station for station in read_dc09(arguments.dc09).stations}
    stations = chosen(arguments.stations, known, "station")
    with needed_by("this", "siadc09", "dc09"):
        import siadc09  # noqa: F401
    results = asyncio.run(_ask_all(stations))
    if arguments.json:
        for name, receiver, problem in results:
            print_json({"station": name, "receiver": receiver, "problem": problem})
    else:
        rows = [(name, receiver, Text(problem or "acknowledges", style="bold red" if problem else "green"))
                for name, receiver, problem in results]  # fmt: skip
        print_table(("Station", "Receiver", "Result"), rows, empty="The file declares no stations.")
    if failed := [receiver for _, receiver, problem in results if problem]:
        raise CheckFailedError(f"no acknowledgement from {', '.join(failed)}")
    return 0


async def _ask_all(stations: list[StationOptions]) -> list[tuple[str, str, str]]:
    return [
        (station.name, str(receiver), await _ask(station, receiver))
        for station in stations
        for receiver in station.receivers
    ]


async def _ask(station: StationOptions, receiver: Receiver) -> str:
    """Send a supervision message; returns the problem, '' if it is acknowledged."""
    from embereye.addons.dc09.exchange import NoAnswerError, exchange
    from embereye.addons.dc09.frames import FrameError, poll_frame

    try:
        key = read_key(station.key_file)
        answer = await exchange(receiver, poll_frame(station, key, time.time_ns()), 0, key, station.timeout)
    except (NoAnswerError, FrameError, ValueError, OSError) as error:
        return str(error)
    match answer.kind:
        case "ACK":
            return ""
        case "NAK" if answer.time_ns is not None:
            ahead = (answer.time_ns - time.time_ns()) / SECOND
            return f"it refuses the time stamp (NAK): its clock is {ahead:+.0f} s ahead; the hub adapts to it"
        case "NAK":
            return "it refuses the message (NAK), without its time"
    return "it cannot process supervision messages (DUH): set pollSeconds: 0"
