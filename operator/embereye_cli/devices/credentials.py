"""Store the user and password of cameras or a broker under a name, for `credentialsRef: {name: NAME}`.

Without --kubectl they are written to the folder that `embereye up` reads, with access for this user only. With it, the
commands that create the Secret in a cluster are printed instead. The password is read from standard input, never from
an option, because options are visible to everyone on the machine. Running shards use a changed password at their next
connection. Files that root writes belong to the owner of the folder, such as the systemd service's user.

To change a password without a gap: store the new one with --next, change it in the devices, store it again without
--next. Between, shards send the one that a device accepts.
"""

import argparse
import getpass
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError
from embereye.process.login_folder import NEXT, PASSWORD, USER
from embereye_operator.api.shared import OBJECT_NAME
from embereye_operator.decide.manifests.names import LABEL_ALLOWED

FOLDER = "EMBEREYE_CREDENTIALS"  # names the folder with a folder per name
MOST = 1024  # bytes of a user or a password, as shards read them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye credentials set`."""
    parser.add_argument("secret", metavar="NAME", help="name, as a fleet's credentialsRef has it")
    parser.add_argument("--user", "-u", default="", help="user name; default: the first line of standard input")
    parser.add_argument("--folder", type=Path, default=None, metavar="DIR",
                        help="folder with a folder per name (default: $EMBEREYE_CREDENTIALS, else "
                        ".embereye/credentials)")  # fmt: skip
    parser.add_argument(
        "--next",
        action="store_true",
        help="store the password that will replace the present one; both are valid until then",
    )
    parser.add_argument("--kubectl", action="store_true", help="print the commands for a cluster; write nothing")
    parser.add_argument("--namespace", "-n", default="default", help="namespace of the Secret (%(default)s)")


def default_folder() -> Path:
    """The folder in which `embereye up` looks for credentials."""
    return Path(os.environ.get(FOLDER) or ".embereye/credentials")


def run(arguments: argparse.Namespace) -> int:
    """Read user and password, and store them."""
    name = arguments.secret
    if not re.fullmatch(OBJECT_NAME, name) or len(name) > 63:
        raise UserError(f'"{name[:80]}" is not a name: use lower-case letters, digits and -')
    if arguments.kubectl:
        user = arguments.user or "USER"
        commands = next_commands if arguments.next else secret_commands
        print("# The first command reads the password: type it, Enter and Ctrl-D.")
        print("\n".join(commands(name, user, arguments.namespace)))
        return 0
    user, password = _read(arguments.user)
    folder = (arguments.folder or default_folder()) / name
    store(folder, user, password, suffix=NEXT if arguments.next else "")
    if arguments.next:
        print(f"{folder}: the next login is stored beside the present one; shards send the one that a device accepts. "
              "Change it in the devices, then store it again without --next")  # fmt: skip
    else:
        print(f"{folder}: stored. Name it in a fleet: credentialsRef: {{name: {name}}}")
    return 0


def secret_commands(name: str, user: str, namespace: str) -> list[str]:
    """The commands that store a login as the Secret `name` in a cluster; the first one reads the password.

    Each can be repeated, so they also replace a login, and end a change that began with --next.
    """
    kubectl = f"kubectl --namespace {shlex.quote(namespace)}"
    ended = json.dumps({"data": {f"{USER}{NEXT}": None, f"{PASSWORD}{NEXT}": None}})
    return [
        f"{kubectl} create secret generic {name} --from-literal=username={shlex.quote(user)} "
        f"--from-file=password=/dev/stdin --dry-run=client --output=yaml | "
        f"{kubectl} apply --server-side --force-conflicts --filename=-",
        f"{kubectl} label secret {name} {LABEL_ALLOWED}=true --overwrite",
        f"{kubectl} patch secret {name} --type=merge --patch={shlex.quote(ended)}",
    ]


def next_commands(name: str, user: str, namespace: str) -> list[str]:
    """The commands that store the next login beside the present one of the Secret `name`, which must exist."""
    kubectl = f"kubectl --namespace {shlex.quote(namespace)}"
    return [
        f"{kubectl} get secret {name} --output=name && "
        f"{kubectl} create secret generic {name} --from-literal={USER}{NEXT}={shlex.quote(user)} "
        f"--from-file={PASSWORD}{NEXT}=/dev/stdin --dry-run=client --output=yaml | "
        f"{kubectl} apply --server-side --force-conflicts --field-manager=embereye{NEXT} --filename=-"
    ]


def store(folder: Path, user: str, password: str, *, suffix: str = "") -> None:
    """Write user and password to the folder of a name; `suffix` NEXT: beside the present ones. UserError."""
    _check(user, password)
    try:
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if suffix and not (folder / PASSWORD).exists():
            raise UserError(f"{folder}: has no present password: store it without --next")
        for key, value in ((f"{USER}{suffix}", user), (f"{PASSWORD}{suffix}", password)):
            write_whole(folder / key, value.encode(), private=True)
        _give(folder, made, (f"{USER}{suffix}", f"{PASSWORD}{suffix}"))
        if not suffix:
            for key in (f"{PASSWORD}{NEXT}", f"{USER}{NEXT}"):
                (folder / key).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error


def _give(folder: Path, made: Sequence[Path], files: Iterable[str]) -> None:
    """Give `files` in `folder`, and the folders `made` for them, to the owner of the folder that was there, as root."""
    if os.geteuid() != 0:
        return  # they are this user's
    owner = (made[-1].parent if made else folder).stat()
    for path in (*reversed(made), *(folder / name for name in files)):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _read(user: str) -> tuple[str, str]:
    """Ask at a terminal, else read lines: the user, unless it is known, and the password."""
    if sys.stdin.isatty():
        user = user or input("User: ")
        password = getpass.getpass("Password: ")
    else:
        lines = sys.stdin.read().splitlines()
        if not user:
            user, *lines = lines or [""]
        password = lines[0] if lines else ""
    return user, password


def _check(user: str, password: str) -> None:
    for label, value in (("user", user), ("password", password)):
        if not value:
            raise UserError(f"the {label} is missing: write it to standard input, in a separate line")
        if len(value.encode()) > MOST or not value.isprintable():
            raise UserError(f"the {label} is longer than {MOST} bytes or contains control characters")
