"""The files of `embereye up`: manifests of fleets, and its data folder.

`load_fleets` reads all manifests before anything starts and after each change of a file, checks them like an API
server, and names file and line of an error. `versions` detects changes without reading. `locked` gives the data folder
to one process at a time: a lock in it excludes others, and its content shows if the last process was killed. New files
are readable for this user only.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.hub.webhooks.options import parse_webhooks
from embereye.process.files import check_owner, open_file, restrict, system_errors
from embereye.process.lifecycle import NotFoundError, UserError, value_errors
from embereye_operator.api.cameras import Camera
from embereye_operator.api.documents import line_of, read_document, read_documents
from embereye_operator.api.fleets import Fleet, FleetError, parse_config_map, parse_fleet, read_devices
from embereye_operator.runtime.local.runtime import identified

# Created by `embereye up`.
FOLDERS = ("config", "fleets", "hub", "identity", "logs", "objects", "scaling", "shards", "volumes")
LOCKED = b"held\n"  # content of the lock while a process has it
Version = tuple[int, int, int, int] | None


def load_fleets(paths: Sequence[Path], changed: Mapping[Path, bytes] = MappingProxyType({})) -> dict[str, Fleet]:
    """Read the fleets in these files by key, with the devices of the ConfigMaps that they name.

    `changed` has the content that files are going to have. UserError has the file, the field and the remedy.
    """
    fleets: dict[str, tuple[Path, Fleet]] = {}
    maps: dict[tuple[str, str], dict[str, str]] = {}
    for path in paths:
        content = changed[path] if path in changed else _content(path)
        for number, manifest in _manifests(path, content):
            try:
                if manifest.get("kind") == "ConfigMap":
                    name, data = parse_config_map(manifest)
                    if name in maps:
                        raise UserError(f"ConfigMap {'/'.join(name)} is declared twice: remove one")
                    maps[name] = data
                    continue
                fleet = identified(parse_fleet(manifest), 1)
                _check_sources(fleet)
                if fleet.key in fleets:
                    raise UserError(f"{fleet.key} is declared twice: rename or remove one")
            except FleetError as error:
                raise UserError(_with_lines(path, content, number, error)) from error
            except UserError as error:
                raise UserError(f"{path}:{line_of(content, number, '')}: {error}") from error
            fleets[fleet.key] = path, fleet
    if paths and not fleets:
        raise UserError(f"{paths[0]}: contains no fleet. Add a SensorFleet or a CameraFleet")
    return {key: _with_listed(path, fleet, maps) for key, (path, fleet) in fleets.items()}


def _content(path: Path) -> bytes:
    """Read a file; NotFoundError if there is none, UserError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: does not exist") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _with_lines(path: Path, content: bytes, document: int, error: FleetError) -> str:
    """Return the problems of `error`, each with its line: "fleet.yaml:7: SensorFleet …: …; line 9: …"."""
    lines = [line_of(content, document, problem.partition(":")[0]) for problem in error.problems]
    others = [f"line {line}: {problem}" for line, problem in zip(lines[1:], error.problems[1:], strict=True)]
    return "; ".join([f"{path}:{lines[0]}: {error.subject}: {error.problems[0]}", *others])


def _check_sources(fleet: Fleet) -> None:
    """Raise FleetError if a camera's address has a mistake that its pattern allows, such as a "/" in a password."""
    problems = []
    for number, device in enumerate(fleet.devices):
        if isinstance(device, Camera):
            try:
                parse_source(device.source)
            except SourceError as error:
                problems.append(f"spec.cameras[{number}].source: {error}")
    if problems:
        raise FleetError(f"{fleet.type.resource} {fleet.namespace}/{fleet.name}", problems)


def _manifests(path: Path, content: bytes) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield the manifests in a file with the number of their document; UserError if it is malformed."""
    with value_errors(f"{path}: "):
        documents = read_documents(content)
    manifests = [(number, document) for number, document in enumerate(documents) if document is not None]
    if not manifests:
        raise UserError(f"{path}: contains no manifest. Add a SensorFleet or a CameraFleet")
    for number, manifest in manifests:
        if not isinstance(manifest, dict):
            many = isinstance(manifest, list)
            kind = "text" if isinstance(manifest, str) else "a list" if many else "a single value"
            raise UserError(
                f"{path}:{line_of(content, number, '')}: contains {kind} instead of a SensorFleet or a CameraFleet"
            )
    return manifests


def _with_listed(path: Path, fleet: Fleet, maps: Mapping[tuple[str, str], Mapping[str, str]]) -> Fleet:
    """Return `fleet` with the devices in its ConfigMaps; UserError if one is missing or malformed."""
    if not fleet.devices_from:
        return fleet
    in_namespace = {name: data for (namespace, name), data in maps.items() if namespace == fleet.namespace}
    declared = read_devices(fleet, in_namespace)
    if declared.errors:
        missing = any(reference.config_map_ref.name not in in_namespace for reference in fleet.devices_from)
        remedy = ": add its manifest to this file or another" if missing else ""
        raise UserError(f"{path}: {fleet.key}: {'; '.join(declared.errors)}{remedy}")
    spec: Any = fleet.spec
    return replace(
        fleet, spec=replace(spec, **{fleet.kind: tuple(declared.devices.values()), f"{fleet.kind}_from": ()})
    )


def versions(paths: Iterable[Path]) -> list[Version]:
    """Return values that change when a file is saved or replaced, also through a link; None for a missing file."""
    return [_version(path) for path in paths]


def _version(path: Path) -> Version:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def load_webhooks(path: Path) -> object:
    """Read the webhooks in a YAML or JSON file for `embereye hub --webhooks`; UserError."""
    with system_errors(f"--webhooks {path}"), value_errors(f"--webhooks {path}: "):
        document = read_document(path.read_bytes())
        parse_webhooks(document)
    return document


@contextlib.contextmanager
def locked(data: Path) -> Iterator[bool]:
    """Lock the data folder for this process, and restrict new files to this user.

    The block receives True if the previous process was killed, so that processes it started may still be ending.
    UserError if another process has the lock, or if the folder belongs to somebody else or cannot be written. OSErrors
    of the block about files in the folder also become UserErrors, for example files of another user's run.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        _close_to_others(data)
        lock = FileIO(open_file(data / "lock", os.O_RDWR | os.O_APPEND | os.O_CREAT), "r+")
        os.fchmod(lock.fileno(), 0o600)  # of an earlier version, others could lock it
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"--data {data}: not a folder. Choose another") from error
    except OSError as error:
        raise UserError(f"--data {data}: cannot be written ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{data} is in use by another `embereye up`: stop it or choose another --data") from error
        before = os.umask(0o077)
        killed = _replace(lock, LOCKED)
        try:
            yield killed
        except OSError as error:
            if not isinstance(error.filename, str) or not Path(error.filename).resolve().is_relative_to(data.resolve()):
                raise
            remedy = "make yourself its owner, or " if isinstance(error, PermissionError) else ""
            sentence = f"{error.filename}: cannot be used ({error.strerror}): {remedy}choose another --data"
            raise UserError(sentence) from error
        finally:
            os.umask(before)
            _replace(lock, b"")


def _replace(lock: FileIO, text: bytes) -> bool:
    """Replace the file's content by `text` if there is space; return True if it had any content."""
    had_content = os.fstat(lock.fileno()).st_size > 0
    with contextlib.suppress(OSError):
        lock.truncate(0)
        lock.write(text)
    return had_content


def _close_to_others(data: Path) -> None:
    """Forbid other users of this machine to read the folder's content; UserError if it belongs to one of them.

    It contains pictures, recordings, camera passwords and digests of tokens. The list of metrics at its top stays
    readable, because a Prometheus of another user reads it.
    """
    check_owner("--data", data)
    if (data / "hub" / "admin-token").exists():  # written by an earlier run, maybe of an earlier version
        restrict([data / name for name in FOLDERS], 0o077)
