"""Libraries of extras, which may not be installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from embereye.process.lifecycle import UserError


@contextmanager
def needed_by(feature: str, library: str, extra: str) -> Iterator[None]:
    """Import `library` in this block; UserError says how to install it with `extra` if it is missing."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"{feature} needs {library}: pip install 'embereye[{extra}]' ({error})") from error
