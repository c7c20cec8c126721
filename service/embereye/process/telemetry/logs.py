"""Log lines for people and for machines: one record, one line, times in UTC.

`configure` installs a single handler, with a formatter for text or JSON. Both escape control characters, because names
come from devices. An argument that follows a word such as "device" in a record's message also becomes a field in JSON,
so no call has to name its fields.
"""

import json
import logging
import os
import re
import sys
import time
from typing import Any

FORMAT_VARIABLE = "EMBEREYE_LOG_FORMAT"  # text or json; child processes inherit it
FORMATS = ("text", "json")
NOISY = ("grpc", "grpc._cython", "aiohttp.access", "httpx2", "httpcore2")
# A message "device %s: ..." is about that device: in JSON the argument also becomes a field.
PLACEHOLDER = re.compile(r"%(?!%)[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]")
NAMED = re.compile(r"\b(device|sensor|camera|zone|shard|fleet) $")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FIELD = {"sensor": "device", "camera": "device"}


def configure(level: str = "INFO") -> None:
    """Log to standard error in the format of FORMAT_VARIABLE."""
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get(FORMAT_VARIABLE) == "json":
        handler.setFormatter(JsonFormatter())
    else:
        formatter = TextFormatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def visible(text: str) -> str:
    """Escape the control characters in `text`, so that a terminal does not interpret them."""
    return CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


class TextFormatter(logging.Formatter):
    """Formats a record as one line, without control characters of devices' names; only a traceback adds lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the line, with control characters escaped."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Format the traceback, with control characters in its lines escaped."""
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, and the fleet, shard, device and zone in it."""

    def __init__(self) -> None:
        super().__init__()
        # The process's fleet and shard are in every record, unless the record names others.
        known = {"fleet": os.environ.get("EMBEREYE_FLEET"), "shard": os.environ.get("EMBEREYE_SHARD")}
        self._process = {name: value for name, value in known.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as JSON, without a line break."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
            **_named(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _named(record: logging.LogRecord) -> dict[str, str]:
    """The arguments of a record that follow a known name in its message, by field."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    fields = {}
    for place, match in enumerate(PLACEHOLDER.finditer(record.msg)):
        name = NAMED.search(record.msg[: match.start()])
        if name and place < len(record.args):
            fields[FIELD.get(name[1], name[1])] = str(record.args[place])
    return fields
