"""Print the code that makes your shell complete `embereye`.

bash: add `eval "$(embereye completion bash)"` to ~/.bashrc; zsh: the same with zsh, in ~/.zshrc, after compinit;
fish: `embereye completion fish > ~/.config/fish/completions/embereye.fish`.
"""

import importlib
import os
import shlex
from argparse import ArgumentParser, Namespace
from typing import Any

from embereye_cli.main import COMMANDS, GROUPS, command_of, command_parser
from embereye_cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the argument."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: Namespace) -> int:
    """Print the shell code; return the exit code."""
    print(_library().shellcode(["embereye"], shell=arguments.shell))
    return 0


def complete() -> None:
    """Print what can follow on the command line in COMP_LINE, and exit: the shell calls us for that."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0")) or None]
    try:
        typed = shlex.split(line)[1:]
    except ValueError:  # a quote that is still open
        typed = line.split()[1:]
    _library().autocomplete(completion_parser(typed))


def completion_parser(typed: list[str]) -> Parser:
    """A parser of all commands, with the options of the one that was `typed`: only its module is imported."""
    words = command_of(typed)
    parser = Parser(prog="embereye")
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    for name in dict.fromkeys(known[0] for known in COMMANDS):
        if words == (name,):
            commands.add_parser(name, parents=[command_parser(words)], add_help=False)
            continue
        group = commands.add_parser(name, help=GROUPS.get(name) or COMMANDS[name,][1])
        kinds = group.add_subparsers()
        for known, (_, sentence) in COMMANDS.items():
            if known[0] == name and len(known) > 1:
                parents = [command_parser(known)] if known == words else []
                kinds.add_parser(known[1], help=sentence, parents=parents, add_help=not parents)
    for name, sentence in (("help", "explain a command"), ("version", "print the version")):
        commands.add_parser(name, help=sentence)
    return parser


def _library() -> Any:
    return importlib.import_module("argcomplete")
