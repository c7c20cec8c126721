"""Write the files of a site on this machine: fleet.yaml, notify.yaml and the folder of credentials.

At a terminal, five questions are asked: cameras, sensors, zones, people to notify, and the data folder. Options answer
them without questions. An address may have its zone in front: yard=rtsp://10.0.0.7/live. A user and password in an
address go to the folder of credentials, which only this user can read, and not into fleet.yaml. Existing files are not
overwritten without --force. At the end, the commands to run are printed.
"""

import argparse
import getpass
import json
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError
from embereye_operator.api.documents import read_documents
from embereye_operator.api.fleets import FleetError, parse_fleet
from embereye_operator.api.shared import API_VERSIONS, OBJECT_NAME, ZONE

PLACED = re.compile(rf"(?P<zone>{ZONE.strip('^$')})=(?P<address>.+)")
TEMPLATES = {  # beginning of a topic → the template of those who publish there
    "zigbee2mqtt/": "zigbee2mqtt", "zwave/": "zwavejs", "application/": "chirpstack", "v3/": "ttn", "shell": "shelly",
}  # fmt: skip
LOGIN = re.compile(r"(?P<scheme>[a-z]+://)(?P<login>[^/]*)@(?P<rest>[^@]*)")
SEARCH = "search"
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
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--up", action="store_true", help="run `embereye up` at the end")


def run(arguments: argparse.Namespace) -> int:
    """Ask or read the answers, write the files, and print or run what comes next."""
    site = _asked(arguments) if _has_questions(arguments) else _named(arguments)
    if not site.cameras and not site.sensors:
        raise UserError("nothing to watch: name a camera or a sensor")
    files = _files(arguments.folder, site)
    if not arguments.force and (existing := [str(path) for path in files if path.exists()]):
        raise UserError(f"{', '.join(existing)}: exists already, nothing was written. Add --force to overwrite")
    _write(files, site.data / "credentials")
    fleet, notify = arguments.folder / "fleet.yaml", arguments.folder / "notify.yaml"
    words = [str(fleet), *(["--notify", str(notify)] if site.routes else []), *_data_option(site)]
    for path in files:
        print(f"{path}: written")
    if arguments.up:
        from embereye_cli.main import main

        return main(["up", *words])
    _print_next(site, words)
    return 0


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
    """The answers of the person at the terminal."""
    print("Addresses may have their zone in front: yard=rtsp://10.0.0.7/live. Empty: none.\n")
    cameras = _ask(f'1. Cameras: addresses, separated by spaces, or "{SEARCH}" for ONVIF').split()
    sensors = [text.strip() for text in _ask("2. MQTT sensors: topics, separated by commas").split(",") if text.strip()]
    broker = _ask("   Their broker", "mqtt://127.0.0.1:1883") if sensors else ""
    zone = _ask("3. Zone of those that name none", arguments.zone)
    routes = _ask("4. People to notify: addresses of Apprise, such as ntfys://TOPIC").split()
    data = Path(_ask("5. Folder of history, clips and credentials", str(arguments.data)))
    site = Site(template=arguments.template, routes=routes, data=data)
    if cameras == [SEARCH]:
        cameras = _search()
    login = ""
    if cameras and (user := _ask("   User of the cameras (empty: none, or in the address)")):
        login, site.logins["cameras"] = "cameras", (user, getpass.getpass("   Password: "))
    for text in cameras:
        _add_camera(site, text, zone, login)
    broker_login = ""
    if sensors and not LOGIN.match(broker) and (user := _ask("   User at the broker (empty: none)")):
        broker_login, site.logins["broker"] = "broker", (user, getpass.getpass("   Password: "))
    _add_sensors(site, sensors, zone, broker, broker_login)
    return site


def _ask(question: str, default: str = "") -> str:
    return input(f"{question}{f' [{default}]' if default else ''}: ").strip() or default


def _search() -> list[str]:
    """The addresses of the ONVIF cameras that answer in the network."""
    import asyncio

    from embereye.camera.discovery import addresses, search

    print("Searching for 4 s …", file=sys.stderr)
    cameras = asyncio.run(search(addresses(()).values(), 4.0, lambda text: print(text, file=sys.stderr)))
    return [camera.source for camera in cameras]


def _add_camera(site: Site, text: str, zone: str, login: str) -> None:
    from embereye.camera.sources.declared import SourceError, parse_source

    place = PLACED.fullmatch(text)
    zone, address = (place["zone"], place["address"]) if place else (zone, text)
    address = address if "://" in address or address.startswith("/") else f"onvif://{address}"
    try:
        declared = parse_source(address)
    except SourceError as error:
        raise UserError(f"--camera: {error}") from error
    if declared.user:
        address, user, password = _without_login(address)
        login = _stored(site, "cameras", user, password)
    site.cameras.append(Device(address, _checked_zone(zone), login))


def _add_sensors(site: Site, topics: Iterable[str], zone: str, broker: str, login: str) -> None:
    for text in topics:
        place = PLACED.fullmatch(text)
        zone_of, topic = (place["zone"], place["address"]) if place else (zone, text)
        site.sensors.append(Device(topic.removeprefix("mqtt:"), _checked_zone(zone_of)))
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
        raise UserError(f'zone "{zone[:80]}": use letters, digits and dashes')
    return zone


def _without_login(address: str) -> tuple[str, str, str]:
    """`address` without user and password, and those."""
    parts = urlsplit(address)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, unquote(parts.username or ""), unquote(parts.password or "")


def _stored(site: Site, name: str, user: str, password: str) -> str:
    """The name under which this login is stored; several have numbers."""
    number, chosen = 1, name
    while site.logins.get(chosen, (user, password)) != (user, password):
        number += 1
        chosen = f"{name}-{number}"
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
    number, chosen = 1, text
    while chosen in ids:
        number += 1
        chosen = f"{text}-{number}"
    ids.add(chosen)
    return chosen


def _notify_text(routes: Iterable[str]) -> str:
    """A notify.yaml in which every route gets every alarm until somebody acknowledges."""
    listed = [f"  - {{name: route-{number}, url: {_quoted(url)}}}" for number, url in enumerate(routes, 1)]
    address = "# publicUrl: https://fire.example.com   # the console's address on your phone"
    return "\n".join([address, "routes:", *listed, ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _data_option(site: Site) -> list[str]:
    return [] if site.data == Path(".embereye") else ["--data", str(site.data)]


def _print_next(site: Site, words: list[str]) -> None:
    """Print the commands that come next."""
    print("\nNext:")
    folder = site.data / "credentials"
    wanted = {device.login for device in site.cameras} | {site.broker_login}
    for name in sorted(wanted - {""} - site.logins.keys()):
        print(f"  {shlex.join(['embereye', 'credentials', 'set', name, '--folder', str(folder)])}")
    print(f"  {shlex.join(['embereye', 'doctor', *words])}")
    print(f"  {shlex.join(['embereye', 'up', *words])}")
