"""Let work in a zone make signs without an alarm for a while: list profiles; begin, confirm and end permits."""

import math
from argparse import ArgumentParser, Namespace
from typing import Any
from urllib.parse import quote

from embereye.process.lifecycle import UserError
from embereye.zone.profile import QUANTITIES
from embereye.zone.sentences import quantity
from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.options import Option
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import local_time, print_answer, print_json, print_table
from embereye_cli.values import duration

NOT_DECLARED = "This hub has no profiles: start it with --profiles (addons/profiles/README.md)"
LISTER = "embereye profile list"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    actions.add_parser("list", help="list profiles, permits, and what nobody has confirmed")
    begin = actions.add_parser("begin", help="give a zone a profile until an end")
    begin.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    begin.add_argument("name", metavar="PROFILE", help="its name in the list")
    begin.add_argument("--for", dest="span", type=duration, required=True, metavar="DURATION",
                       help="how long, such as 90m or 4h")  # fmt: skip
    begin.add_argument("--reason", required=True, help="why, such as the permit's number")
    begin.add_argument("--watchman", default="", metavar="NAME", help="who watches the work; some profiles need one")
    confirm = actions.add_parser(
        "confirm", help="confirm that a zone still needs its profile, or the hours of a profile"
    )
    confirm.add_argument("zone", nargs="?", default="", metavar="ZONE", help="name, or namespace/name")
    confirm.add_argument(
        "--hours",
        default="",
        metavar="PROFILE",
        help="instead of a zone: the profile's hours, and its switch at the MQTT broker",
    )
    end = actions.add_parser("end", help="end a zone's permit early, or dismiss that nobody confirmed it")
    end.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    for action in (begin, confirm, end):
        Option("--who", "your name, if several people share a token; recorded beside the token's name").add_to(action)
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason if it refuses."""
    hub = HttpHub(console_connection(arguments))
    {"list": _list, "begin": _begin, "confirm": _confirm, "end": _end}[arguments.action](hub, arguments)
    return 0


def _list(hub: HttpHub, arguments: Namespace) -> None:
    state = hub.read("/v1/profiles", "profiles", "permits", "unconfirmed", lister=NOT_DECLARED)
    if arguments.json:
        print_json(state)
        return
    rows = [
        (
            each["name"], ", ".join(each["zones"]), ", ".join(each["expected"]), _stricter(each),
            f"{each['longestMinutes']} min",
            f"{each['confirmMinutes']} min", _hours(each),
        )
        for each in state["profiles"]
    ]  # fmt: skip
    print_table(
        ("Profile", "Zones", "Expected", "Alarm", "Longest", "Confirmed every", "Hours or switch"), rows, empty="None."
    )
    permits = [
        (
            f"{each['namespace']}/{each['zone']}", each["profile"], local_time(int(each["untilNs"])),
            local_time(int(each["confirmByNs"])), each["who"], each["watchman"], each["reason"],
        )
        for each in state["permits"]
    ]  # fmt: skip
    columns = ("Zone", "Profile", "Until", "Confirm by", "Who", "Watchman", "Reason")
    print_table(columns, permits, empty="Every zone without hours has its normal profile.")
    for sentence in state["unconfirmed"]:
        print(f"{sentence[:1].upper()}{sentence[1:]}.")


def _stricter(profile: dict[str, Any]) -> str:
    """The signs that are an alarm alone, and the limits."""
    limits = [f"{name} ≥ {quantity(value, QUANTITIES[name][2])}" for name, value in profile["limits"].items()]
    return ", ".join([*profile["alarmAlone"], *limits])


def _hours(profile: dict[str, object]) -> str:
    if not profile["hasHours"] and not profile["mqtt"]:
        return ""
    if not profile["confirmedBy"]:
        return "not confirmed"
    return f"confirmed by {profile['confirmedBy']} until {local_time(int(str(profile['confirmedUntilNs'])))}"


def _post(hub: HttpHub, arguments: Namespace, path: str, result: str, **body: object) -> None:
    answer = hub.read(path, body={**body, "who": arguments.who}, lister=LISTER)
    print_answer(answer, [result], as_json=arguments.json)


def _begin(hub: HttpHub, arguments: Namespace) -> None:
    minutes = math.ceil(arguments.span / 60)
    result = f"{arguments.zone}: {arguments.name} for {minutes} min. `{LISTER}` shows when to confirm it."
    _post(
        hub, arguments, hub.zone_path(arguments.zone, "profile"), result, profile=arguments.name, minutes=minutes,
        reason=arguments.reason, watchman=arguments.watchman,
    )  # fmt: skip


def _confirm(hub: HttpHub, arguments: Namespace) -> None:
    name, hours = arguments.zone, arguments.hours
    if bool(name) == bool(hours):
        raise UserError("name either a zone, or a profile with --hours")
    path = f"/v1/profiles/{quote(hours, safe='')}/confirm" if hours else hub.zone_path(name, "profile/confirm")
    _post(hub, arguments, path, f"{hours or name}: confirmed.")


def _end(hub: HttpHub, arguments: Namespace) -> None:
    _post(hub, arguments, hub.zone_path(arguments.zone, "profile/end"), f"{arguments.zone}: normal.")
