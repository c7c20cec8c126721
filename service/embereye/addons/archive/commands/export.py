"""Write an alarm with its pictures, clips, reasons, people's actions and hashes to one ZIP file.

The file needs nothing of EmberEye: open `summary.html` in a browser, or `summary.txt` in an editor. `SHA256SUMS` lists
the hash of every file, for `sha256sum --check`. The file is written beside its destination first, so it is complete or
absent. What could not be fetched is named in the summary.
"""

import hashlib
import json
import os
import re
import time
import zipfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format

from embereye.addons.archive.summary import Attachment, Incident, html, text
from embereye.levels import Kind
from embereye.process.lifecycle import NotFoundError, RefusedError, UserError
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye_cli.explain.alarm import LISTER, check_alarm_id, sentences
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub

PAGE = 1_000  # entries of the audit trail in one answer
MAX_PAGES = 20
MARGIN_NS = 3_600 * SECOND  # of the audit trail after the alarm's end: a mark as false often follows
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("alarm", metavar="ID", help="the alarm's id, as `embereye alarms --json history` has it")
    parser.add_argument("--to", type=Path, metavar="FILE", help="ZIP file to write; default: incident-ID.zip here")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--without-clips", action="store_true", help="only pictures: clips can be large")
    add_console_options(parser)


def run(arguments: Namespace) -> int:
    """Write the file; UserError if the alarm or the destination cannot be used."""
    check_alarm_id(arguments.alarm)
    path = arguments.to or Path(f"incident-{arguments.alarm}.zip")
    if path.exists() and not arguments.force:
        raise UserError(f"{path} exists. Name another file with --to, or add --force to replace it.")
    hub = HttpHub(console_connection(arguments))
    alarm = hub.read(f"/v1/alarms/{arguments.alarm}", "events", lister=LISTER)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            incident = _Export(hub, alarm, archive).write(with_clips=not arguments.without_clips)
        draft.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    print(f"{path}: {counted(len(incident.attachments), 'picture and clip', 'pictures and clips')}, "
          f"{path.stat().st_size / 1e6:.1f} MB")  # fmt: skip
    for problem in incident.missing:
        print(f"not included: {problem}")
    return 0


class _Export:
    """Writes one alarm to an open archive."""

    def __init__(self, hub: HttpHub, alarm: dict[str, Any], archive: zipfile.ZipFile) -> None:
        self._hub = hub
        self._alarm = alarm
        self._archive = archive
        self._id = str(alarm["alarm"])
        self._sums: dict[str, str] = {}
        self._missing: list[str] = []
        self._events = [
            json_format.ParseDict(event, AlarmEvent(), ignore_unknown_fields=True) for event in alarm["events"]
        ]

    def write(self, *, with_clips: bool) -> Incident:
        """Write everything; returns what the summary says."""
        recorded = self._hub.read(f"/v1/alarms/{self._id}/clips", "clips")
        clips = [*recorded.get("lines", []), *recorded["clips"]]
        attachments = [*self._pictures(), *self._clips(clips, with_clips=with_clips)]
        audit = self._audit()
        incident = Incident(
            self._alarm, list(sentences(self._alarm, self._events, clips)), attachments, audit, self._missing,
            time.time_ns(),
        )  # fmt: skip
        self._add("alarm.json", json.dumps(self._alarm, ensure_ascii=False, indent=1).encode())
        if audit:
            self._add("audit.json", json.dumps(audit, ensure_ascii=False, indent=1).encode())
        self._add("summary.txt", text(incident).encode())
        self._add("summary.html", html(incident).encode())
        sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(self._sums.items()))
        self._archive.writestr(f"incident-{self._id}/SHA256SUMS", sums)
        return incident

    def _add(self, name: str, content: bytes) -> str:
        """Add a file; returns its SHA-256."""
        packed = zipfile.ZIP_DEFLATED if name.endswith(("json", "jsonl", "txt", "html")) else zipfile.ZIP_STORED
        self._archive.writestr(f"incident-{self._id}/{name}", content, packed)
        digest = self._sums[name] = hashlib.sha256(content).hexdigest()
        return digest

    def _fetch(self, path: str, name: str) -> bytes:
        """Fetch `path`; empty, and noted as missing, if the hub does not have it any more."""
        try:
            return self._hub.fetch(path)
        except NotFoundError as error:
            self._missing.append(f"{name}: {error}")
            return b""

    def _pictures(self) -> Iterator[Attachment]:
        """Add the picture of each sign."""
        seen = dict[tuple[str, int], int]()
        for event in self._events:
            for item in event.contributions:
                seen.setdefault((item.device, int(item.kind)), item.since_ns)
        for (device, kind), since_ns in seen.items():
            name = f"pictures/{_plain(device)}-{Kind(kind).word}.jpg"
            try:
                content = self._hub.fetch(f"/v1/alarms/{self._id}/{quote(device, safe='')}/{kind}.jpg")
            except NotFoundError:
                continue  # not every sign has a picture
            yield Attachment(name, device, since_ns, f"{Kind(kind).word} joins the alarm", self._add(name, content))

    def _clips(self, clips: list[dict[str, Any]], *, with_clips: bool) -> Iterator[Attachment]:
        for clip in sorted(clips, key=lambda clip: int(clip["fromNs"])):
            suffix = str(clip["url"]).rpartition(".")[2]
            started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(clip["fromNs"]) / SECOND))
            name = f"clips/{started}-{_plain(str(clip['device']))}-{clip['sha256'][:8]}.{suffix}"
            if suffix != "jpg" and not with_clips:
                self._missing.append(f"{name}: left out on request, SHA-256 {clip['sha256']}")
                continue
            if not (content := self._fetch(str(clip["url"]), name)):
                continue
            words = {"jpg": "annotated picture", "jsonl": "measured values"}.get(suffix, "clip")
            note = f": {clip['note']}" if clip.get("note") else ""
            digest = self._add(name, content)
            if digest != clip["sha256"]:
                self._missing.append(f"{name}: its content is not what the hub stored, SHA-256 {clip['sha256']}")
            yield Attachment(name, str(clip["device"]), int(clip["fromNs"]), words + note, digest)

    def _audit(self) -> list[dict[str, Any]]:
        """The audit trail from the alarm's begin to an hour after its end; empty if this token may not read it."""
        began_ns, ended_ns = int(self._alarm["beganNs"]), int(self._alarm["endedNs"]) or time.time_ns()
        entries: list[dict[str, Any]] = []
        before = "0"
        try:
            for _ in range(MAX_PAGES):
                page = self._hub.read(f"/v1/audit?limit={PAGE}&before={before}", "entries")["entries"]
                entries += [entry for entry in page if began_ns <= int(entry["timeNs"]) <= ended_ns + MARGIN_NS]
                if len(page) < PAGE or int(page[-1]["timeNs"]) < began_ns:
                    return entries[::-1]
                before = page[-1]["number"]
        except RefusedError:
            self._missing.append("the audit trail: only an admin's token may read it")
        return entries[::-1]


def _plain(name: str) -> str:
    """`name` as a part of a file's name."""
    return UNSAFE.sub("_", name).strip(".")[:80] or "_"
