"""The database table of the times at which devices were last heard and analysed, one row for each fleet.

`CoverageBook` has them in memory. They are written every minute and at an orderly end, so that a restarted hub does not
call a device 'never heard' while its shard waits for it.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from embereye.hub.tables.table import StateTable


class Heard(NamedTuple):
    """The times at which a device was last heard and analysed, on the hub's timeline; 0: never."""

    heard_ns: int
    analysed_ns: int


def _read(row: tuple[str, str]) -> tuple[str, Mapping[str, Heard]]:
    entries = json.loads(row[1])
    return str(row[0]), {str(device): Heard(int(heard), int(analysed)) for device, (heard, analysed) in entries.items()}


HEARD = StateTable[str, Mapping[str, Heard]](  # by fleet and device
    """
CREATE TABLE IF NOT EXISTS heard (fleet TEXT PRIMARY KEY, times TEXT NOT NULL) WITHOUT ROWID;
""",
    dump=lambda times: (json.dumps(times, ensure_ascii=False, separators=(",", ":")),),
    read=_read,
    is_rewritten=False,
)
