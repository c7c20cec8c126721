"""Check the panels of a Modbus file: read every output, or switch each one on for a moment.

With --dry-run nothing is written: it connects to each panel, reads each place, and shows its rule. Without it, each
 place of the chosen panels is switched on, one after the other, and then set back to the value that it had. A hub
that runs on the same file sets its own values again within a second.
"""

import asyncio
import logging
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from embereye.addons.modbus.options import OPTION, PanelOptions, Place, Rule, read_modbus
from embereye.process.extras import needed_by
from embereye.process.lifecycle import CheckFailedError, UserError
from embereye_cli.declared import chosen
from embereye_cli.options import Option
from embereye_cli.terminal import print_json, print_table

if TYPE_CHECKING:
    from pymodbus.client import AsyncModbusTcpClient

Result = tuple[str, str, str, str, str]  # panel, place, rule, value, problem


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("panels", nargs="*", metavar="PANEL", help="names of panels; default: all")
    Option(OPTION, "the file of the hub; required", type=Path, metavar="FILE").add_to(parser)
    parser.add_argument("--dry-run", action="store_true", help="write nothing: read each output and show its rule")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each output is on (%(default)s)")
    parser.add_argument("--yes", action="store_true", help="switch real outputs on: needed without --dry-run")
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each output")


def run(arguments: Namespace) -> int:
    """Check the panels; CheckFailedError if one cannot be used."""
    if arguments.modbus is None:
        raise UserError(f"{OPTION} is missing. Name the file of the hub.")
    if not arguments.dry_run and not arguments.yes:
        raise UserError(
            "this switches sirens, doors and relays on. Add --dry-run to read only, or --yes if you mean it."
        )
    if not 0 < arguments.seconds <= 60:
        raise UserError(f"--seconds: {arguments.seconds:g} is not from 0 to 60")
    options = read_modbus(arguments.modbus)
    panels = chosen(arguments.panels, {panel.name: panel for panel in options.panels}, "panel")
    with needed_by("this", "pymodbus", "modbus"):
        import pymodbus  # noqa: F401
    logging.getLogger("pymodbus.logging").setLevel(logging.CRITICAL)
    results = asyncio.run(_check(panels, 0.0 if arguments.dry_run else arguments.seconds))
    _show(results, json=arguments.json)
    if failed := sorted({result[0] for result in results if result[4]}):
        raise CheckFailedError(f"not all outputs can be used: {', '.join(failed)}")
    return 0


def _show(results: list[Result], *, json: bool) -> None:
    if json:
        for result in results:
            print_json(dict(zip(("panel", "place", "rule", "value", "problem"), result, strict=True)))
        return
    rows = [(*row[:4], Text(row[4] or "works", style="bold red" if row[4] else "green")) for row in results]
    print_table(("Panel", "Output", "Rule", "Value now", "Result"), rows, empty="The file declares no panels.")


async def _check(panels: list[PanelOptions], seconds: float) -> list[Result]:
    return [result for panel in panels for result in await _check_panel(panel, seconds)]


async def _check_panel(panel: PanelOptions, seconds: float) -> list[Result]:
    from embereye.addons.modbus.panel import PanelError, connect, connection

    client = connection(panel)
    rules = [(rule.place, _words(rule), rule) for rule in panel.table.rules]
    places: list[tuple[Place, str, Rule | None]] = [*rules]
    if panel.table.heartbeat:
        places.append((panel.table.heartbeat, "heartbeat", None))
    try:
        await connect(panel, client)
        return [(panel.name, str(place), words, *await _try(client, panel, place, rule, seconds))
                for place, words, rule in places]  # fmt: skip
    except PanelError as error:
        return [(panel.name, str(place), words, "", str(error)) for place, words, _ in places]
    finally:
        client.close()


async def _try(
    client: "AsyncModbusTcpClient", panel: PanelOptions, place: Place, rule: Rule | None, seconds: float
) -> tuple[str, str]:
    """Read `place`, and switch it on for `seconds` unless they are 0; its value, and what failed."""
    from embereye.addons.modbus.panel import ConnectionLostError, PanelError, read, write

    value = ""
    try:
        before = await read(client, panel, place)
        value = str(before)
        if seconds and rule:
            await write(client, panel, place, rule.on)
            try:
                await asyncio.sleep(seconds)
            finally:
                await write(client, panel, place, before)
    except ConnectionLostError:
        raise
    except PanelError as error:
        return value, str(error)
    return value, ""


def _words(rule: Rule) -> str:
    until = f" until {rule.until}" if rule.when in ("alarm", "pre-alarm") else ""
    return f"{rule.when} in {', '.join(rule.zones)}{until}: {rule.on}, else {rule.off}"
