"""Saved incidents: a folder for each, with all that is needed to decide its alarm again.

| file | content |
| --- | --- |
| `incident.json` | the alarm with its events, its recordings, and what was decided again when it was saved |
| `N-DEVICE.…` | one file for each recording: a sensor's lines, or a camera's clip |

The files are for a repository: they stay readable by later versions, and nothing else refers to them.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from embereye.process.files import system_errors
from embereye.process.lifecycle import NotFoundError, UserError
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.shard_pb2 import CameraSettings, SensorSettings
from embereye_cli.explain.alarm import Verdict, events_of, replay_alarm
from embereye_cli.explain.masks import MasksOf, saved_masks

FORMAT = 1  # of incident.json
INCIDENT = "incident.json"
ENDINGS = {"MEDIA_LINES": ".txt", "MEDIA_CLIP": ".mkv", "MEDIA_VIDEO": ".mp4"}  # by media; others are stills


@dataclass(frozen=True)
class Incident:
    """A saved alarm."""

    folder: Path
    alarm: dict[str, Any]  # as in `GET /v1/alarms/ALARM`
    # as in `GET /v1/alarms/ALARM/clips`, with "file" and "sha256", and "masks" if those of its camera are known
    recordings: list[dict[str, Any]]
    expected: list[dict[str, Any]]  # what each replay decided when it was saved

    @classmethod
    def read(cls, folder: Path) -> "Incident":
        """Read the incident in `folder`. UserError if it is missing or not one."""
        path = folder / INCIDENT
        try:
            saved = json.loads(path.read_text())
            if saved["format"] != FORMAT:
                raise UserError(f"{path} has format {saved['format']}; this version reads format {FORMAT}")
            incident = cls(folder, saved["alarm"], saved["recordings"], saved["expected"])
            events_of(incident.alarm)
            for recording in incident.recordings:
                saved_masks(recording)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{path} is not a saved incident: {error}") from error
        return incident

    @property
    def events(self) -> list[AlarmEvent]:
        """The alarm's events, ascending."""
        return events_of(self.alarm)

    def write(self) -> None:
        """Write `incident.json`; the recordings are there already. Raises OSError."""
        document = {"format": FORMAT, "alarm": self.alarm, "recordings": self.recordings, "expected": self.expected}
        (self.folder / INCIDENT).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")

    def replay(
        self,
        settings: Mapping[str, SensorSettings | CameraSettings] = MappingProxyType({}),
        masks_of: MasksOf = saved_masks,
    ) -> Iterator[Verdict]:
        """Decide once more, with this version and, for the fleets among them, with `settings`.

        UserError if a recording is missing or has changed.
        """
        return replay_alarm(self.events, self.recordings, self._content, settings, masks_of)

    def _content(self, url: str) -> bytes:
        recording = next(recording for recording in self.recordings if recording["url"] == url)
        path = self.folder / Path(recording["file"]).name
        with system_errors(f"{path} cannot be read"):
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != recording["sha256"]:
            raise UserError(f"{path} has changed since it was saved")
        return content


def file_name(number: int, recording: dict[str, Any]) -> str:
    """The file name of the recording with this number: its device's id without special characters."""
    device = re.sub(r"[^A-Za-z0-9.-]", "_", str(recording["device"]))[:60].lstrip(".")
    return f"{number}-{device}{ENDINGS.get(recording['media'], '.jpg')}"


def find(folder: Path) -> list[Path]:
    """The folders of incidents in `folder`, or itself; NotFoundError if there are none."""
    if (folder / INCIDENT).is_file():
        return [folder]
    if not (incidents := sorted(path.parent for path in folder.glob(f"*/{INCIDENT}"))):
        raise NotFoundError(f"{folder} contains no saved incident. `embereye incident save` makes one.")
    return incidents
