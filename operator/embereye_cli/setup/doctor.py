"""Check everything that fleets on this machine need: ports, clock, disk, decoding, cameras, brokers, routes to people.

Each line says ok, warn or fail, and what to do. Cameras are played for a moment, with one log-in each. Nothing is sent
to people, unless --send is given. Exit code 1: something fails.
"""

import argparse
import asyncio
import os
from pathlib import Path

from rich.text import Text

from embereye.process import lifecycle
from embereye.process.addons import addon_modules
from embereye_cli.options import options_of
from embereye_cli.setup.findings import FAIL, OK, WARN, Finding
from embereye_cli.setup.machine import check_machine
from embereye_cli.setup.reach import cameras_of, check_cameras, check_passwords
from embereye_cli.terminal import Terminal, print_json
from embereye_cli.values import named_port
from embereye_operator.api.fleets import Fleet
from embereye_operator.up.folder import load_fleets
from embereye_operator.up.options import UpOptions

COLOURS = {OK: "green", WARN: "yellow", FAIL: "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye doctor`."""
    parser.add_argument("manifests", nargs="*", type=Path, metavar="FLEET.yaml", help="manifests of the fleets")
    parser.add_argument("--data", type=Path, default=Path(".embereye"), metavar="DIR",
                        help="data folder of `embereye up` (default: .embereye)")  # fmt: skip
    parser.add_argument("--console-port", type=named_port, default=8080, help="port of the console (default: 8080)")
    parser.add_argument("--hub-port", type=named_port, default=50052, help="gRPC port of the hub (default: 50052)")
    parser.add_argument("--skip-cameras", action="store_true", help="do not connect to cameras")
    for addon in addon_modules("doctor"):
        addon.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check and print; exit code 1 if something fails."""
    lifecycle.configure_logging("CRITICAL")
    fleets = list(load_fleets(arguments.manifests).values())
    os.environ.setdefault("EMBEREYE_CREDENTIALS", str((arguments.data / "credentials").resolve()))
    findings = asyncio.run(_check(arguments, fleets))
    if arguments.json:
        print_json({"findings": [vars(finding) for finding in findings]})
    else:
        _print(findings)
    return 1 if any(finding.level == FAIL for finding in findings) else 0


async def _check(arguments: argparse.Namespace, fleets: list[Fleet]) -> list[Finding]:
    findings = [*check_machine(options_of(UpOptions, arguments), fleets), *check_passwords(fleets)]
    if not arguments.skip_cameras:
        findings += await check_cameras(cameras_of(fleets))
    for addon in addon_modules("doctor"):
        findings += await addon.check(arguments, fleets)
    return findings


def _print(findings: list[Finding]) -> None:
    console = Terminal()
    for finding in findings:
        level = f"{finding.level:<5}", COLOURS[finding.level]
        console.print(Text.assemble(level, f"{finding.subject}: {finding.text}"), soft_wrap=True)
        if finding.remedy and finding.level != OK:
            console.print(f"     → {finding.remedy}", soft_wrap=True, markup=False)
    counts = {level: sum(finding.level == level for finding in findings) for level in (FAIL, WARN)}
    console.print(f"{len(findings)} checked, {counts[FAIL]} failed, {counts[WARN]} warnings.")
