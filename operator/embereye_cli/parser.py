"""Command lines: argparse with short sentences about what is wrong, and with "did you mean".

All commands use `Parser`. It replaces argparse's texts by this project's sentences, suggests the closest option or
choice for an unknown one, and points to `--help`. Usage errors exit with code 2.
"""

import argparse
import copy
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

CLOSE = 0.6  # similarity of two words from which one is suggested for the other, 0 to 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that names the closest of the `known` words, after a space; empty if none is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=CLOSE)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with a suggestion, and a pointer to help."""

    program = "embereye"  # name in front of errors

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what `-5m` means for a value, not for an option."""
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"-\d.*")

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is, and exit with code 2."""
        self.exit(2, f"{self.program}: {plain(message)}\nSee: {self.prog} --help\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or suggest an option for one that does not exist."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown, parsed))
        return parsed

    def _unknown(self, words: Sequence[str], parsed: argparse.Namespace) -> str:
        options = [word for word in words if word.startswith("-")]
        if not options:
            return f"{' '.join(words)}: unexpected argument."
        option = options[0].partition("=")[0]
        return f"{option}: there is no such option.{did_you_mean(option, self._visible_options(parsed))}"

    def _visible_options(self, parsed: argparse.Namespace) -> set[str]:
        """The options of this parser and of the action that was named."""
        names: set[str] = set()
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen = action.choices.get(getattr(parsed, action.dest, None) or "")
                names |= chosen._visible_options(parsed) if isinstance(chosen, Parser) else set()
            else:
                names.update(action.option_strings)
        return names

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices if choice]
            listed = f"{value!s}: not one of {', '.join(known)}."
            raise argparse.ArgumentError(action, f"{listed}{did_you_mean(str(value), known)}")


def accept_after_actions(parser: argparse.ArgumentParser, actions: "argparse._SubParsersAction[Any]") -> None:
    """Accept the options of `parser` after an action's name too, where people write them."""
    options = [option for option in parser._actions if option.option_strings and option.dest != "help"]
    names = ", ".join(option.option_strings[0] for option in options)
    for action in actions.choices.values():
        for option in options:
            repeated = copy.copy(option)
            repeated.default = repeated.help = argparse.SUPPRESS
            action._add_action(repeated)
        action.epilog = f"{names} and --utc work here too; see `{parser.prog} --help`."


def plain(message: str) -> str:
    """The `message` of argparse in this project's words."""
    message = message.removeprefix("argument ")
    if required := re.fullmatch(r"the following arguments are required: (.*)", message):
        return f"{required[1]}: missing."
    if single := re.fullmatch(r"(.*): expected (?:one|at least one) argument", message):
        return f"{single[1]}: its value is missing."
    return message
