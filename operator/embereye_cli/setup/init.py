"""Write the files of a site on this machine, check everything, and start watching.

The files are fleet.yaml, notify.yaml and the folder of credentials. At a terminal, five questions are asked: cameras,
sensors, zones, people to notify, and the data folder. Options answer them without questions. An address may have its
zone in front: yard=rtsp://10.0.0.7/live. A user and password in an address go to the folder of credentials, which only
this user can read, and not into fleet.yaml. Existing files are not overwritten without --force.

Then `embereye doctor` checks ports, clock, disk, decoding, cameras, brokers and routes. If nothing fails, `embereye up`
starts after questions, and with --up. Exit code 1: something fails; the files are written, and nothing was started.
"""

import argparse
import getpass
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError, value_errors
from embereye.units import numbered
from embereye_cli.values import named_port
from embereye_operator.api.documents import read_documents
from embereye_operator.api.fleets import FleetError, parse_fleet
from embereye_operator.api.shared import API_VERSIONS, OBJECT_NAME, ZONE

PLACED = re.compile(rf"(?P<zone>{ZONE.strip('^$')})=(?P<address>.+)")
TEMPLATES = {  # beginning of a topic → the template of those who publish there
    "zigbee2mqtt/": "zigbee2mqtt", "zwave/": "zwavejs", "application/": "chirpstack", "v3/": "ttn", "shell": "shelly",
}  # fmt: skip
LOGIN = re.compile(r"(?P<scheme>[a-z]+://)(?P<login>[^/]*)@(?P<rest>[^@]*)")
SEARCH = "search"
Answer = TypeVar("Answer")
CAMERAS_GRPC = 50061  # beside a fleet of sensors, which has the default


@dataclass
class Device:
    """A camera's address or a sensor's topic, and its zone."""

    address: str
    zone: str
    login: str = ""  # name of its credentials


@dataclass
class Site:
    """The answers."""

    cameras: list[Device] = field(default_factory=list)
    sensors: list[Device] = field(default_factory=list)
    template: str = ""
    broker: str = ""
    broker_login: str = ""
    routes: list[str] = field(default_factory=list)  # addresses of Apprise
    data: Path = Path(".embereye")
    logins: dict[str, tuple[str, str]] = field(default_factory=dict)  # user and password by name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye init`."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="folder of the files (.)")
    parser.add_argument("--camera", action="append", default=[], metavar="[ZONE=]ADDRESS",
                        help="a host that speaks ONVIF, or a URL such as rtsp://HOST/PATH; repeatable")  # fmt: skip
    parser.add_argument("--search", action="store_true", help="search the network for ONVIF cameras")
    parser.add_argument("--credentials", default="", metavar="NAME",
                        help="name of the cameras' login, as `embereye credentials set` stores it")  # fmt: skip
    parser.add_argument("--sensor", action="append", default=[], metavar="[ZONE=]TOPIC",
                        help="MQTT topic of a sensor, such as 'zigbee2mqtt/Kitchen smoke'; repeatable")  # fmt: skip
    parser.add_argument("--broker", default="", metavar="URL", help="MQTT broker of the sensors: mqtt://HOST")
    parser.add_argument("--broker-credentials", default="", metavar="NAME", help="name of the login at the broker")
    parser.add_argument("--template", default="", help="template of the sensors (default: by their topic)")
    parser.add_argument("--zone", default="home", help="zone of devices that name none (%(default)s)")
    parser.add_argument("--notify", action="append", default=[], metavar="URL",
                        help="people to notify: an address of Apprise, such as ntfys://TOPIC; repeatable")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(".embereye"), metavar="DIR",
                        help="folder of history, clips and credentials (%(default)s)")  # fmt: skip
    parser.add_argument("--console-port", type=named_port, default=8080, help="port of the console (%(default)s)")
    parser.add_argument("--hub-port", type=named_port, default=50052, help="gRPC port of the hub (%(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--skip-check", action="store_true", help="do not run `embereye doctor`")
    parser.add_argument("--up", action=argparse.BooleanOptionalAction, default=None,
                        help="run `embereye up` at the end (default: only after questions)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Ask or read the answers, write the files, check, and start or print what comes next."""
    asks = _has_questions(arguments)
    site = _asked(arguments) if asks else _named(arguments)
    if not site.cameras and not site.sensors:
        raise UserError("nothing to watch: name a camera or a sensor")
    files = _files(arguments.folder, site)
    if not arguments.force and (existing := [str(path) for path in files if path.exists()]):
        raise UserError(f"{', '.join(existing)}: exists already, nothing was written. Add --force to overwrite")
    _write(files, site.data / "credentials")
    for path in files:
        print(f"{path}: written")
    words = _words(arguments, site)
    starts = asks if arguments.up is None else arguments.up
    if missing := _missing_logins(site):
        _print_next(*(["credentials", "set", name, "--folder", str(site.data / "credentials")] for name in missing),
                    ["doctor", *words], ["up", *words])  # fmt: skip
        return int(starts)
    return _check_and_start(words, checks=not arguments.skip_check, starts=starts)


def _check_and_start(words: list[str], *, checks: bool, starts: bool) -> int:
    """Run `embereye doctor` and `embereye up` with `words`, or print what comes next; return the exit code."""
    from embereye_cli.main import main

    if checks:
        print("\nChecking:", flush=True)
        if code := main(["doctor", *words]):
            print("\nNothing was started.")
            _print_next(["doctor", *words], ["up", *words])
            return code
    if starts:
        return main(["up", *words])
    _print_next(*([] if checks else [["doctor", *words]]), ["up", *words])
    return 0


def _words(arguments: argparse.Namespace, site: Site) -> list[str]:
    """The options of `embereye doctor` and `embereye up` for this site."""
    words = [str(arguments.folder / "fleet.yaml")]
    if site.routes:
        words += ["--notify", str(arguments.folder / "notify.yaml")]
    if site.data != Path(".embereye"):
        words += ["--data", str(site.data)]
    for option, default in (("console_port", 8080), ("hub_port", 50052)):
        if (port := getattr(arguments, option)) != default:
            words += [f"--{option.replace('_', '-')}", str(port)]
    return words


def _missing_logins(site: Site) -> list[str]:
    """The names of logins that are neither in the answers nor stored."""
    wanted = {device.login for device in site.cameras} | {site.broker_login}
    stored = {name for name in wanted if (site.data / "credentials" / name / "password").exists()}
    return sorted(wanted - {""} - site.logins.keys() - stored)


def _has_questions(arguments: argparse.Namespace) -> bool:
    """True if the questions are to be asked; UserError if nobody can answer them."""
    if arguments.camera or arguments.sensor or arguments.search:
        return False
    if not sys.stdin.isatty():
        raise UserError("standard input is no terminal, so nothing was asked: give --camera, --sensor or --search")
    return True


def _named(arguments: argparse.Namespace) -> Site:
    """The answers that options give."""
    site = Site(template=arguments.template, routes=arguments.notify, data=arguments.data)
    for text in [*arguments.camera, *(_search() if arguments.search else [])]:
        _add_camera(site, text, arguments.zone, arguments.credentials)
    _add_sensors(site, arguments.sensor, arguments.zone, arguments.broker, arguments.broker_credentials)
    return site


def _asked(arguments: argparse.Namespace) -> Site:
    """The answers of the person at the terminal; options are suggested."""
    print("Addresses may have their zone in front: yard=rtsp://10.0.0.7/live. Empty: none.\n")
    cameras = _ask(f'1. Cameras: addresses, separated by spaces, or "{SEARCH}" for ONVIF', _camera_list)
    sensors = _ask("2. MQTT sensors: topics, separated by commas", _topic_list)
    broker = _ask("   Their broker", str, arguments.broker or "mqtt://127.0.0.1:1883") if sensors else ""
    zone = _ask("3. Zone of those that name none", _checked_zone, arguments.zone)
    question = "4. People to notify: addresses of Apprise, such as ntfys://TOPIC"
    routes = _ask(question, str.split, " ".join(arguments.notify))
    data = _ask("5. Folder of history, clips and credentials", Path, str(arguments.data))
    site = Site(template=arguments.template, routes=routes, data=data)
    login = arguments.credentials
    if cameras and not login and (user := _ask("   User of the cameras (empty: none, or in the address)", str)):
        login, site.logins["cameras"] = "cameras", (user, getpass.getpass("   Password: "))
    for text in cameras:
        _add_camera(site, text, zone, login)
    login = arguments.broker_credentials
    has_login = login or LOGIN.match(broker)
    if sensors and not has_login and (user := _ask("   User at the broker (empty: none)", str)):
        login, site.logins["broker"] = "broker", (user, getpass.getpass("   Password: "))
    _add_sensors(site, sensors, zone, broker, login)
    return site


def _ask(question: str, read: Callable[[str], Answer], default: str = "") -> Answer:
    """Ask until `read` accepts the answer; UserError if the terminal ends."""
    while True:
        try:
            text = input(f"{question}{f' [{default}]' if default else ''}: ").strip() or default
        except EOFError as error:
            raise UserError("the answers ended: nothing was written") from error
        try:
            return read(text)
        except UserError as error:
            print(f"   {error}")


def _camera_list(text: str) -> list[str]:
    """The addresses of cameras in `text`, each checked; UserError."""
    cameras = text.split()
    if cameras == [SEARCH]:
        if not (cameras := _search()):
            raise UserError("no camera answered: is ONVIF enabled in them? Name their addresses, or leave it empty")
        print(f"   {' '.join(cameras)}")
    for camera in cameras:
        _parse_camera(camera, "home")
    return cameras


def _topic_list(text: str) -> list[str]:
    """The topics in `text`, each with a zone that is checked; UserError."""
    topics = [topic.strip() for topic in text.split(",") if topic.strip()]
    for topic in topics:
        _parse_topic(topic, "home")
    return topics


def _search() -> list[str]:
    """The addresses of the ONVIF cameras that answer in the network."""
    import asyncio

    from embereye.camera.discovery import addresses, search

    print("Searching for 4 s …", file=sys.stderr)
    cameras = asyncio.run(search(addresses(()).values(), 4.0, lambda text: print(text, file=sys.stderr)))
    return [camera.source for camera in cameras]


def _add_camera(site: Site, text: str, zone: str, login: str) -> None:
    zone, address, has_login = _parse_camera(text, zone)
    if has_login:
        address, user, password = _without_login(address)
        login = _stored(site, "cameras", user, password)
    site.cameras.append(Device(address, zone, login))


def _parse_camera(text: str, zone: str) -> tuple[str, str, bool]:
    """Zone and address of a camera, and whether the address has a user; UserError."""
    from embereye.camera.sources.declared import parse_source

    place = PLACED.fullmatch(text)
    zone, address = (place["zone"], place["address"]) if place else (zone, text)
    address = address if "://" in address or address.startswith("/") else f"onvif://{address}"
    with value_errors(""):
        declared = parse_source(address)
    return _checked_zone(zone), address, bool(declared.user)


def _parse_topic(text: str, zone: str) -> tuple[str, str]:
    """Zone and topic of a sensor; UserError."""
    place = PLACED.fullmatch(text)
    zone, topic = (place["zone"], place["address"]) if place else (zone, text)
    return _checked_zone(zone), topic.removeprefix("mqtt:")


def _add_sensors(site: Site, topics: Iterable[str], zone: str, broker: str, login: str) -> None:
    for text in topics:
        zone_of, topic = _parse_topic(text, zone)
        site.sensors.append(Device(topic, zone_of))
    if not site.sensors:
        return
    if not broker:
        raise UserError("--broker is missing: name the MQTT broker of the sensors, such as mqtt://10.0.0.2")
    broker = broker if "://" in broker else f"mqtt://{broker}"
    if LOGIN.match(broker):
        broker, user, password = _without_login(broker)
        login = _stored(site, "broker", user, password)
    site.broker, site.broker_login = broker, login


def _checked_zone(zone: str) -> str:
    if not re.fullmatch(ZONE, zone) or len(zone) > 63:
        raise UserError(f"zone \"{zone[:80]}\": use letters, digits, '.', '_' and '-'")
    return zone


def _without_login(address: str) -> tuple[str, str, str]:
    """`address` without user and password, and those."""
    parts = urlsplit(address)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, unquote(parts.username or ""), unquote(parts.password or "")


def _stored(site: Site, name: str, user: str, password: str) -> str:
    """The name under which this login is stored; several have numbers."""
    chosen = numbered(name, [known for known, login in site.logins.items() if login != (user, password)])
    site.logins[chosen] = user, password
    return chosen


def _files(folder: Path, site: Site) -> dict[Path, bytes]:
    """The files to write, by their path; UserError if a fleet is not valid."""
    for name in {site.broker_login, *(device.login for device in site.cameras)} - {""}:
        if not re.fullmatch(OBJECT_NAME, name):
            raise UserError(f'credentials "{name[:80]}": use lower-case letters, digits and dashes')
    fleet = _fleet_text(site)
    try:
        for document in read_documents(fleet.encode()):
            parse_fleet(document)
    except FleetError as error:
        raise UserError(f"{error.subject}: {'; '.join(error.problems)}") from error
    files = {folder / "fleet.yaml": fleet.encode()}
    if site.routes:
        files[folder / "notify.yaml"] = _notify_text(site.routes).encode()
    for name, (user, password) in site.logins.items():
        files[site.data / "credentials" / name / "username"] = user.encode()
        files[site.data / "credentials" / name / "password"] = password.encode()
    return files


def _write(files: dict[Path, bytes], credentials: Path) -> None:
    try:
        credentials.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, content in files.items():
            private = credentials in path.parents
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
            write_whole(path, content, private=private or path.name == "notify.yaml")
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be written: {error.strerror}") from error


def _fleet_text(site: Site) -> str:
    """The manifests of the fleets, as people edit them."""
    documents, ids = [], set[str]()
    if site.cameras:
        lines = [f"  listen: {{grpc: {CAMERAS_GRPC}}}", "  cameras:"] if site.sensors else ["  cameras:"]
        for camera in site.cameras:
            login = f", credentialsRef: {{name: {_quoted(camera.login)}}}" if camera.login else ""
            lines.append(f"    - {{id: {_quoted(_id(camera.zone, ids))}, zone: {_quoted(camera.zone)}, "
                         f"source: {_quoted(camera.address)}{login}}}")  # fmt: skip
        documents.append("\n".join([_head("CameraFleet", "cameras"), *lines]))
    if site.sensors:
        login = f", credentialsRef: {{name: {_quoted(site.broker_login)}}}" if site.broker_login else ""
        lines = [f"  mqtt: {{broker: {_quoted(site.broker)}{login}}}", "  sensors:"]
        for sensor in site.sensors:
            template = site.template or next(
                (name for start, name in TEMPLATES.items() if sensor.address.startswith(start)), "plain"
            )
            lines.append(f"    - {{id: {_quoted(_id(f'{sensor.zone}-smoke', ids))}, zone: {_quoted(sensor.zone)}, "
                         f"source: {_quoted(f'mqtt:{sensor.address}')}, template: {template}}}")  # fmt: skip
        documents.append("\n".join([_head("SensorFleet", "sensors"), *lines]))
    return "\n---\n".join(documents) + "\n"


def _head(kind: str, name: str) -> str:
    return f"apiVersion: {API_VERSIONS[-1]}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:"


def _id(text: str, ids: set[str]) -> str:
    """An id made of `text` that is not among `ids`, and add it to them."""
    chosen = numbered(text, ids)
    ids.add(chosen)
    return chosen


def _notify_text(routes: Iterable[str]) -> str:
    """A notify.yaml in which every route gets every alarm until somebody acknowledges."""
    listed = [f"  - {{name: route-{number}, url: {_quoted(url)}}}" for number, url in enumerate(routes, 1)]
    address = "# publicUrl: https://fire.example.com   # the console's address on your phone"
    return "\n".join([address, "routes:", *listed, ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _print_next(*commands: list[str]) -> None:
    """Print the commands that come next."""
    print("\nNext:")
    for words in commands:
        print(f"  {shlex.join(['embereye', *words])}")
