"""Tables and colours for whoever reads a command's output."""

from typing import NoReturn

from rich.console import Console


class Terminal(Console):
    """Ends as all output does where nobody reads it any more; rich alone would end the process, as failed."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError."""
        raise BrokenPipeError
