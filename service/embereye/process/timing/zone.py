"""The name of this machine's time zone, for people who read times elsewhere."""

import functools
import os
import zoneinfo
from pathlib import Path

FOLDER = "zoneinfo/"  # of time zones on most systems; the name of a zone follows


@functools.cache
def zone_name(environment: str | None = None, link: Path = Path("/etc/localtime")) -> str:
    """The zone of the IANA database, such as Europe/Vienna; "UTC" if none is set, "" if its name is unknown.

    `environment` is the value of TZ; None: that of this process. `link` points to the file of the system's zone.
    """
    wanted = os.environ.get("TZ") if environment is None else environment
    if wanted is None or not wanted.lstrip(":"):
        if not link.exists():
            return "UTC"
        _, folder, wanted = str(link.resolve()).rpartition(FOLDER)
        if not folder:
            return ""
    name = wanted.lstrip(":").rpartition(FOLDER)[2].removeprefix("posix/")
    try:
        return "UTC" if name in {"Etc/UTC", "UCT", "Zulu"} else zoneinfo.ZoneInfo(name).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return ""
