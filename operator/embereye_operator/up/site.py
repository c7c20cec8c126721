"""A note in the data folder of `embereye up`: where its hub and console listen, so that other commands find them."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from embereye.process.files import write_whole

DATA = Path(".embereye")  # the default of --data, in the working folder
SERVICE_DATA = Path("/var/lib/embereye")  # the data folder of `embereye service install`
FILE = "site.json"


@dataclass(frozen=True, kw_only=True)
class Site:
    """The addresses of one `embereye up`."""

    hub: str  # HOST:PORT of gRPC, as this machine dials it
    console: str  # URL, as people open it
    local_console: str  # URL, as this machine dials it
    tls: bool = False  # hub and console speak TLS, with a certificate of the authority in the data folder


def authority_file(data: Path) -> Path:
    """The file with the certificates that commands on this machine trust; PEM."""
    return data / "identity/authority/ca.crt"  # `LocalIdentities.authority`, without its imports


def token_file(data: Path) -> Path:
    """The file with the admin's token."""
    return data / "hub" / "admin-token"


def write_site(data: Path, site: Site) -> None:
    """Replace the note in `data`. OSError if it cannot be written."""
    write_whole(data / FILE, json.dumps(asdict(site)).encode(), private=True)


def read_site(data: Path) -> Site | None:
    """The note in `data`; None if there is none, or if another user could have written it."""
    try:
        if os.geteuid() and data.stat().st_uid not in {0, os.geteuid()}:
            return None
        return Site(**json.loads((data / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
