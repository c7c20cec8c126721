"""Options of a hub's peers: brokers and servers that it connects to."""

import os
from collections.abc import Callable
from pathlib import Path


def env(name: str, default: str = "") -> str:
    """The environment variable EMBEREYE_`name`."""
    return os.environ.get(f"EMBEREYE_{name}", default)


def add_folders(add: Callable[..., object], name: str, peer: str, files: str) -> None:
    """Declare the folders with credentials and certificates for `peer`."""
    upper = name.upper()
    add(f"--{name}-credentials", type=Path, default=env(f"{upper}_CREDENTIALS") or None, metavar="DIR",
        help=f"folder with the files {files}, read again for each connection; default: none "
        f"[EMBEREYE_{upper}_CREDENTIALS]")  # fmt: skip
    add(f"--{name}-tls", type=Path, default=env(f"{upper}_TLS") or None, metavar="DIR",
        help=f"folder with ca.crt and, if {peer} requires a certificate, tls.crt and tls.key; "
        f"default: the system's authorities [EMBEREYE_{upper}_TLS]")  # fmt: skip
