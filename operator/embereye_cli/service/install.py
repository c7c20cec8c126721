"""Install `embereye up` as a systemd service: it starts with the machine and restarts if it fails."""

import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError
from embereye_cli.options import add_options
from embereye_cli.parser import Parser, plain
from embereye_cli.processes import up
from embereye_cli.service.unit import DATA, NAME, Places, build_unit, is_stable, systemctl
from embereye_operator.api.cameras import Camera, with_passwords
from embereye_operator.runtime.local.runtime import check_port
from embereye_operator.up.folder import load_fleets
from embereye_operator.up.options import UpOptions, check_access, check_simulators, wanted_ports


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("manifests", nargs="+", type=Path, metavar="FLEET.yaml",
                        help="manifests of fleets; copied to /etc/embereye, edit them there")  # fmt: skip
    parser.add_argument("--no-start", action="store_true", help="write the files, and start nothing")
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR",
                        help="write below DIR instead of /, for an image; implies --no-start")  # fmt: skip
    parser.add_argument("--up", nargs=REMAINDER, default=[], metavar="OPTION",
                        help="options of `embereye up`, at the end: --up --listen 0.0.0.0")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Write unit and manifests, and start the service; return the exit code."""
    places = Places(arguments.root)
    fleets = load_fleets(arguments.manifests)
    options = _read_options(arguments.up)
    check_access(options, fleets.values())
    check_simulators(options, fleets.values())
    wanted_ports(options, fleets.values())
    if places.is_this_machine:
        check_port(0, "the hub", "", options.reach.listen)
    webhooks, words = _webhooks(arguments.up)
    hub_files, words = _hub_files(words)
    names = [path.name for path in arguments.manifests]
    files = [*arguments.manifests, *webhooks]
    if webhooks:
        words += ["--webhooks", f"/etc/embereye/{webhooks[-1].name}"]
    if twice := sorted(name for name, count in Counter(path.name for path in files).items() if count > 1):
        raise UserError(f"{twice[0]} is there twice. Files in {places.manifests} need different names.")
    if places.is_this_machine:
        _check_readable(hub_files, places.manifests)
    _write_files(places, files, build_unit(sys.executable, names, words))
    print(f"{places.unit} written; manifests are in {places.manifests}, data in {DATA}")
    cameras = (device for fleet in fleets.values() for device in fleet.devices if isinstance(device, Camera))
    if exposed := sorted(with_passwords(cameras)):
        print(
            f"warning: every user of this machine can read the passwords of {', '.join(exposed)} in "
            f"{places.manifests}. "
            f"Store them by `embereye credentials set NAME --folder {DATA}/credentials`, and use credentialsRef.",
            file=sys.stderr,
        )
    if arguments.no_start or not places.is_this_machine:
        return 0
    systemctl("daemon-reload")
    systemctl("enable", NAME)
    systemctl("restart", NAME)  # also starts a stopped service
    if not is_stable():
        print(
            "embereye: the service restarts again and again, and nothing is watched. Run journalctl --unit embereye "
            "--lines 20 for the reason, correct it, and install again.",
            file=sys.stderr,
        )
        return 1
    print("started; its log: journalctl --unit embereye --follow")
    print(f"sign in with a link: sudo {Path(sys.executable).parent}/{options.link_command()}")
    return 0


def _write_files(places: Places, files: Sequence[Path], unit: str) -> None:
    """Copy `files` to the folder of manifests, and write the unit; UserError if that is not allowed."""
    try:
        places.manifests.mkdir(parents=True, exist_ok=True)
        for path in files:
            _copy(path, places.manifests / path.name)
        places.unit.parent.mkdir(parents=True, exist_ok=True)
        write_whole(places.unit, unit.encode())
        places.unit.chmod(0o644)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written: {error.strerror}; run this as root") from error


def _read_options(words: Sequence[str]) -> UpOptions:
    """The options of the service; UserError if `embereye up` refuses them, or if the service sets them itself."""
    parser = _UpParser(add_help=False)
    up.add_arguments(parser)
    parser.set_defaults(data=None, logs=None)
    parsed = parser.parse_args(["manifest.yaml", *words])
    if parsed.data is not None or parsed.logs is not None:
        option = "--data" if parsed.data is not None else "--logs"
        raise UserError(f"{option} is fixed for the service: its data is in {DATA}, its log in the journal")
    if len(parsed.manifests) > 1:
        raise UserError(f"--up: {parsed.manifests[1]} is not an option. Name manifests before --up.")
    parsed.data, parsed.logs = DATA, "stderr"
    return up.read_options(parsed)


def _webhooks(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The file of --webhooks, if any, and the other words: the service can read only its own copy."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--webhooks", type=Path)
    known, others = parser.parse_known_args(words)
    return [known.webhooks] if known.webhooks else [], others


def _hub_files(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The hub's other files in `words`, such as the one of --notify, and `words` with whole paths to them."""
    options = [option for option in up.HUB_OPTIONS if option.type is Path]
    parser = ArgumentParser(add_help=False)
    add_options(parser, options)
    known, others = parser.parse_known_args(words)
    pairs = [tuple(option.words(known)) for option in options]
    return [Path(path) for _, path in filter(None, pairs)], [*others, *chain.from_iterable(pairs)]


def _check_readable(hub_files: Iterable[Path], manifests: Path) -> None:
    """Raise UserError if the service's user cannot read this installation, or one of `hub_files`."""
    if closed := _closed_to_others(Path(sys.executable), Path(__file__)):
        raise UserError(
            f"{closed} is readable by its owner only, and the service runs as another user. Install EmberEye "
            "elsewhere, for example with `python3 -m venv /opt/embereye`, and run this command from there."
        )
    if closed := _closed_to_service(hub_files):
        raise UserError(
            f"{closed} is readable by its owner only, and the service runs as another user. Copy the file, for example "
            f"with `install -D --mode=0644 FILE {manifests}/FILE`, and name the copy."
        )


class _UpParser(Parser):
    """Reports mistakes in options of `embereye up` as errors of this command."""

    def error(self, message: str) -> "None":  # type: ignore[override]
        """Raise UserError with `message`."""
        raise UserError(f"--up: {plain(message)}", "See: embereye up --help")


def _copy(source: Path, target: Path) -> None:
    if target.exists() and source.samefile(target):
        return  # the manifest is in its place already
    write_whole(target, source.read_bytes())
    target.chmod(0o644)


def _closed_to_service(files: Iterable[Path]) -> Path | None:
    """The first of `files`, or of the folders above them, that others cannot read; None if there is none.

    The service can read its data folder, which is closed to others.
    """
    for path in files:
        if not path.is_relative_to(DATA.resolve()):
            if closed := _closed_to_others(path):
                return closed
            if not path.stat().st_mode & 0o004:
                return path
    return None


def _closed_to_others(*paths: Path) -> Path | None:
    """The first folder above `paths` that other users cannot enter; None if they can enter all."""
    for path in paths:
        for folder in reversed([*path.absolute().parents, *path.resolve().parents]):
            if not folder.stat().st_mode & 0o001:
                return folder
    return None
