"""The manifests of `embereye up` as the console changes them: preview, apply and undo.

A change is checked as `embereye up` checks the files, with all fleets together, before anything is written. A file that
somebody else has changed meanwhile is not written, so no edit is lost. The last changes are stored in the hub's data
folder, and can be undone while the file is as the change left it.
"""

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embereye.addons.setup.editing import (
    KINDS,
    Action,
    Change,
    EditError,
    declared,
    device_text,
    edit,
    edit_list,
    listed,
)
from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError

UNDOABLE = 50  # changes that can be undone
MOST = 1_000_000  # bytes of a manifest that is edited


@dataclass(frozen=True)
class Edited:
    """A file, before and after a change."""

    path: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The difference, as `diff --unified` prints it."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), str(self.path), str(self.path), lineterm="", n=2
        )
        return "\n".join(lines)


class Editor:
    """Edits the manifests at `paths`; `folder` keeps what can be undone. Not for several processes at a time."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self._paths = list(paths)
        self._folder = folder

    @property
    def is_there(self) -> bool:
        """True if it has manifests to edit."""
        return bool(self._paths)

    def fleets(self) -> list[dict[str, Any]]:
        """Describe each fleet with its file and its devices, also those in ConfigMaps of the manifests; EditError."""
        texts = {path: _read(path) for path in self._paths}
        lists = {name: devices for text in texts.values() for name, devices in listed(text)}
        return [
            {"fleet": fleet.fleet, "file": str(path), "writable": os.access(path, os.W_OK),
             "mqtt": fleet.mqtt,
             "devices": [
                 {**device, "text": device_text(device)}
                 for devices in (fleet.devices, *(lists.get(name, []) for name in fleet.lists)) for device in devices
             ]}
            for path, text in texts.items() for fleet in declared(text)
        ]  # fmt: skip

    def preview(self, change: Change) -> Edited:
        """Make `change` without writing it. EditError if it cannot be made, or if the fleets would be wrong."""
        for path in self._paths:
            text = _read(path)
            for fleet in declared(text):
                if fleet.fleet == change.fleet:
                    in_list = None if _has(fleet.devices, change.device) else self._in_list(fleet.lists, change)
                    if in_list and change.mqtt:
                        raise EditError(f"{change.device} is in a ConfigMap: change the fleet's broker in {path}")
                    return self._checked(in_list or Edited(path, text, edit(text, change)))
        if change.action is not Action.ADD:
            raise EditError(f"no manifest has a fleet {change.fleet}")
        path = self._paths[0]
        text = _read(path)
        return self._checked(Edited(path, text, edit(_with_fleet(text, change.fleet), change)))

    def manifests(self, edited: Edited) -> list[str]:
        """The text of each manifest as `edited` makes it; EditError."""
        return [edited.after if path == edited.path else _read(path) for path in self._paths]

    def _in_list(self, names: Sequence[str], change: Change) -> Edited | None:
        """Change a device in one of the ConfigMaps `names`; None if none of them has it."""
        for path in self._paths:
            text = _read(path)
            for name, devices in listed(text):
                if name in names and _has(devices, change.device):
                    if change.action is Action.ADD:
                        raise EditError(f"{change.fleet} has a device {change.device} already")
                    return Edited(path, text, edit_list(text, name, change))
        return None

    def apply(self, edited: Edited, about: str) -> None:
        """Write the file, and keep what it was; EditError."""
        if _read(edited.path) != edited.before:
            raise EditError(f"{edited.path} was changed meanwhile: look at the change again")
        self._write(edited.path, edited.after)
        number = max((int(entry.stem) for entry in self._entries()), default=0) + 1
        entry = {"path": str(edited.path), "before": edited.before, "after": edited.after, "about": about}
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._folder / f"{number:06d}.json", json.dumps(entry).encode(), private=True)
        for old in self._entries()[:-UNDOABLE]:
            old.unlink(missing_ok=True)

    def last(self) -> tuple[str, Edited] | None:
        """Describe the latest change, with the edit that undoes it; None if there is none."""
        entries = self._entries()
        if not entries:
            return None
        entry = json.loads(entries[-1].read_bytes())
        path = next((path for path in self._paths if str(path) == entry["path"]), None)
        return (entry["about"], Edited(path, entry["after"], entry["before"])) if path else None

    def undo(self) -> str:
        """Undo the latest change and return what it was about; EditError if there is none, or the file is another."""
        last = self.last()
        if last is None:
            raise EditError("there is no change to undo")
        about, edited = last
        if _read(edited.path) != edited.before:
            raise EditError(f"{edited.path} was changed since then: undo it there")
        self._write(edited.path, self._checked(edited).after)
        self._entries()[-1].unlink(missing_ok=True)
        return about

    def _entries(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.json"))

    def _checked(self, edited: Edited) -> Edited:
        """Return `edited` if all manifests together are right with it; EditError."""
        from embereye_cli.processes.up import check_manifests  # some 20 MB, which only a hub with changes takes

        try:
            check_manifests(self._paths, {edited.path: edited.after.encode()})
        except UserError as error:
            raise EditError(str(error)) from error
        return edited

    def _write(self, path: Path, text: str) -> None:
        try:
            mode = path.stat().st_mode & 0o777
            write_whole(path.resolve(), text.encode())  # a link stays a link
            path.chmod(mode)
        except OSError as error:
            raise EditError(f"{path}: cannot be written ({error.strerror})") from error


def _has(devices: Sequence[Mapping[str, Any]], device: str) -> bool:
    return any(each.get("id") == device for each in devices)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MOST:
            raise EditError(f"{path}: has more than {MOST:,} bytes: change it in an editor")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EditError(f"{path}: cannot be read ({error})") from error


def _with_fleet(text: str, fleet: str) -> str:
    """Append a document with an empty fleet."""
    from embereye_cli.processes.up import API_VERSION

    namespace, kind, name = fleet.split("/")
    resource = next(resource for resource, named in KINDS.items() if named == kind)
    metadata = f"{{name: {name}}}" if namespace == "default" else f"{{name: {name}, namespace: {namespace}}}"
    document = f"---\napiVersion: {API_VERSION}\nkind: {resource}\nmetadata: {metadata}\nspec:\n  {kind}: []\n"
    return f"{text.rstrip()}\n{document}" if text.strip() else document.removeprefix("---\n")


def command(change: Change, login: Mapping[str, str]) -> str:
    """The commands that make `change` in a cluster, with the rights of the person who runs them.

    With a `login`, the last one creates its Secret. It reads the password, so nothing may follow it.
    """
    namespace, kind, name = change.fleet.split("/")
    resource = {named: resource for resource, named in KINDS.items()}[kind].lower()
    kubectl = f"kubectl --namespace {namespace}"
    secret = [" && ".join(_secret_commands(login, namespace))] if login else []
    device = {"id": change.device, **_given(change.fields)}
    if change.action is not Action.ADD:
        action = "delete" if change.action is Action.REMOVE else "change"
        broker = [f"# mqtt: {device_text(_given(change.mqtt))}"] if change.mqtt else []
        return "\n".join(
            [f"{kubectl} edit {resource} {name}", *broker, f"# {action}: - {device_text(device)}", *secret]
        )
    patches: list[tuple[str, object]] = [("json", [{"op": "add", "path": f"/spec/{kind}/-", "value": device}])]
    if change.mqtt:
        patches.insert(0, ("merge", {"spec": {"mqtt": change.mqtt}}))
    lines = [
        f"{kubectl} patch {resource} {name} --type={form} --patch-file=/dev/stdin <<'END'\n"
        f"{json.dumps(patch, ensure_ascii=False)}\nEND"
        for form, patch in patches
    ]
    return "\n".join([*lines, *secret])


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _secret_commands(login: Mapping[str, str], namespace: str) -> list[str]:
    from embereye_cli.devices.credentials import secret_commands

    return secret_commands(login["name"], login["user"], namespace)
