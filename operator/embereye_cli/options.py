"""Options whose defaults come from environment variables, declared as data."""

import os
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from embereye_cli.values import port_number

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """An option `--name`; its default is that of EMBEREYE_NAME, or of EMBEREYE_`variable`."""

    name: str  # with its dashes
    help: str  # the name of the variable is appended
    default: str = ""
    type: Callable[[str], Any] = str
    metavar: str | None = None
    choices: Sequence[str] | None = None
    variable: str = ""
    is_flag: bool = False  # set by the option without a value, or by the variable's value "true"
    is_list: bool = False  # repeatable; the variable's values are separated by spaces
    for_up: bool = False  # of the hub: `embereye up` has it, too, and passes it to its hub

    def add_to(self, parser: ArgumentParser | _ArgumentGroup) -> None:
        """Declare it on `parser`. A path without a default is None."""
        variable = f"EMBEREYE_{self.variable or self.name[2:].replace('-', '_').upper()}"
        default = os.environ.get(variable, self.default)
        if self.is_flag:
            parser.add_argument(
                self.name, action="store_true", default=default == "true", help=f"{self.help} [{variable}=true]"
            )
            return
        if self.is_list:
            parser.add_argument(
                self.name, action="append", default=default.split(), metavar=self.metavar,
                help=f"{self.help} [{variable}, separated by spaces]",
            )  # fmt: skip
            return
        parser.add_argument(
            self.name,
            type=self.type,
            default=default or (None if self.type is Path else ""),
            metavar=self.metavar,
            choices=self.choices,
            help=f"{self.help} [{variable}]",
        )

    def words(self, arguments: Namespace) -> Iterator[str]:
        """Yield the words of a command line that give it its value in `arguments`."""
        value = getattr(arguments, self.name[2:].replace("-", "_"))
        for entry in value if self.is_list else [value] if value else []:
            yield from (self.name, str(entry.resolve() if isinstance(entry, Path) else entry))


class OptionGroup:
    """Options that `--help` shows together."""

    def __init__(self, title: str, description: str, *options: Option) -> None:
        self.options = options
        self._title = title
        self._description = description

    def add_to(self, parser: ArgumentParser) -> None:
        """Declare them on `parser`."""
        add_options(parser.add_argument_group(self._title, self._description), self.options)


def folders_of_peer(name: str, peer: str, files: str) -> tuple[Option, Option]:
    """The options for the folders with credentials and certificates for `peer`, a server that a process connects to."""
    return (
        Option(f"--{name}-credentials", f"folder with the files {files}, read again for each connection; default: none",
               type=Path, metavar="DIR"),
        Option(f"--{name}-tls", f"folder with ca.crt and, if {peer} requires a certificate, tls.crt and tls.key; "
               "default: the system's authorities", type=Path, metavar="DIR"),
    )  # fmt: skip


def declared_file(name: str, content: str) -> Option:
    """The option for a YAML file that declares an add-on; `content` is what its help says of the file."""
    return Option(name, f"YAML file {content}; default: none", type=Path, metavar="FILE", for_up=True)


def identity_options(port: int) -> tuple[Option, Option]:
    """The certificate that identifies a process to hub, shards and operator, and its control port."""
    return (
        Option("--identity", "folder with ca.crt, tls.crt and tls.key: the certificate that hub, shards and operator "
               "check; without it, the control port is on loopback only", type=Path, metavar="DIR"),
        Option("--control-port", "control port, for calls of hub, shards and operator", default=str(port),
               type=port_number),
    )  # fmt: skip


def options_of(kind: Callable[..., T], arguments: Namespace, **others: Any) -> T:
    """Build the dataclass `kind` from the options with its fields' names; `others` are the fields named otherwise."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in vars(arguments).items() if name in names} | others)


def add_options(parser: ArgumentParser | _ArgumentGroup, options: Iterable[Option]) -> None:
    """Declare `options` on `parser`, in their order."""
    for option in options:
        option.add_to(parser)
