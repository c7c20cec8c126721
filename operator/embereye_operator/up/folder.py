"""The files that `embereye up` is given: manifests of fleets, and a folder of its own."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

from embereye.hub.webhooks.options import parse_webhooks
from embereye.process.files import restrict
from embereye.process.lifecycle import UserError
from embereye_operator.api.documents import DocumentError, read_document, read_documents
from embereye_operator.api.fleets import Fleet, parse_config_map, parse_fleet, read_devices
from embereye_operator.runtime.local.runtime import identified

FOLDERS = ("config", "fleets", "hub", "identity", "logs", "objects", "scaling", "shards", "volumes")  # that we make
HELD = b"held\n"  # what the lock says until whoever holds it lets go of it
Version = tuple[int, int, int, int] | None


def load_fleets(paths: Sequence[Path]) -> dict[str, Fleet]:
    """The fleets in these files by key, with the devices of those ConfigMaps in the files that they name.

    UserError names the file, the field and the remedy.
    """
    fleets: dict[str, tuple[Path, Fleet]] = {}
    maps: dict[tuple[str, str], dict[str, str]] = {}
    for path in paths:
        for manifest in _manifests(path):
            try:
                if manifest.get("kind") == "ConfigMap":
                    name, data = parse_config_map(manifest)
                    if name in maps:
                        raise UserError(f"ConfigMap {'/'.join(name)} is declared twice: leave one out")
                    maps[name] = data
                    continue
                fleet = identified(parse_fleet(manifest), 1)
                if fleet.key in fleets:
                    raise UserError(f"{fleet.key} is declared twice: give one another name, or leave one out")
            except UserError as error:
                raise UserError(f"{path}: {error}") from error
            fleets[fleet.key] = path, fleet
    if paths and not fleets:
        raise UserError(f"{paths[0]} holds no fleet: it should hold a SensorFleet or a CameraFleet")
    return {key: _with_listed(path, fleet, maps) for key, (path, fleet) in fleets.items()}


def _manifests(path: Path) -> Iterable[dict[str, Any]]:
    """The manifests in a file; UserError."""
    try:
        documents = read_documents(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except DocumentError as error:
        raise UserError(f"{path}: {error}") from error
    manifests = [document for document in documents if document is not None]
    if not manifests:
        raise UserError(f"{path} holds no manifest: it should hold a SensorFleet or a CameraFleet")
    for manifest in manifests:
        if not isinstance(manifest, dict):
            many = isinstance(manifest, list)
            held = "text" if isinstance(manifest, str) else "a list" if many else "a single value"
            raise UserError(f"{path} holds {held} where a SensorFleet or a CameraFleet should stand")
    return manifests


def _with_listed(path: Path, fleet: Fleet, maps: Mapping[tuple[str, str], Mapping[str, str]]) -> Fleet:
    """`fleet` with the devices that ConfigMaps list as its own; UserError where one is missing or wrong."""
    if not fleet.devices_from:
        return fleet
    near = {name: data for (namespace, name), data in maps.items() if namespace == fleet.namespace}
    devices, wrong = read_devices(fleet, near)
    if wrong:
        lacking = any(reference.config_map_ref.name not in near for reference in fleet.devices_from)
        remedy = ": give its manifest, too, in this file or another" if lacking else ""
        raise UserError(f"{path}: {fleet.key}: {'; '.join(wrong)}{remedy}")
    spec: Any = fleet.spec
    return replace(fleet, spec=replace(spec, **{fleet.kind: tuple(devices), f"{fleet.kind}_from": ()}))


def versions(paths: Iterable[Path]) -> list[Version]:
    """What is another one once a file was saved, or a link to it leads to another; None where there is no file."""
    return [_version(path) for path in paths]


def _version(path: Path) -> Version:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return None


def load_webhooks(path: Path) -> object:
    """The webhooks that a YAML or JSON file declares, as `embereye hub --webhooks` has them; UserError."""
    try:
        document = read_document(path.read_bytes())
        parse_webhooks(document)
    except OSError as error:
        raise UserError(f"--webhooks {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"--webhooks {path}: {error}") from error
    return document


@contextlib.contextmanager
def locked(data: Path) -> Iterator[bool]:
    """Hold the data folder for this process alone, and what this process writes from now on for its user alone.

    The block is told whether whoever held it before was killed, so that what it had started may still be ending.
    UserError where another process holds it, it is somebody else's, or it cannot be written; so it is for what the
    block finds in it that is of no use to this user, as a run by another one left it.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        _close_to_others(data)
        lock = (data / "lock").open("a+b", buffering=0)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"--data {data} is not a folder: choose another") from error
    except OSError as error:
        raise UserError(f"--data {data} cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{data} is in use by another `embereye up`: stop it or choose another --data") from error
        before = os.umask(0o077)
        killed = _replace(lock, HELD)
        try:
            yield killed
        except OSError as error:
            if not isinstance(error.filename, str) or not Path(error.filename).resolve().is_relative_to(data.resolve()):
                raise
            remedy = "have it belong to you, or " if isinstance(error, PermissionError) else ""
            sentence = f"{error.filename} cannot be used: {error.strerror}: {remedy}choose another --data"
            raise UserError(sentence) from error
        finally:
            os.umask(before)
            _replace(lock, b"")


def _replace(lock: FileIO, text: bytes) -> bool:
    """Have `text` be all that the file says, where the disk has room; returns whether it said anything."""
    said = os.fstat(lock.fileno()).st_size > 0
    with contextlib.suppress(OSError):
        lock.truncate(0)
        lock.write(text)
    return said


def _close_to_others(data: Path) -> None:
    """Let other users of this machine read nothing of what is below the folder; UserError where it is one of theirs.

    Pictures, recordings, cameras' passwords and digests of tokens are there. At its top is the list of metrics, which a
    Prometheus of another user reads.
    """
    if os.geteuid() and data.stat().st_uid not in {0, os.geteuid()}:
        raise UserError(f"--data {data} belongs to another user, who could put anything there: choose another folder")
    if (data / "hub" / "admin-token").exists():  # written by us before, maybe by an earlier version
        restrict([data / name for name in FOLDERS], 0o077)
