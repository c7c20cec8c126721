"""What a camera's declared source means, before anything is opened."""

from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

SCHEMES = ("rtsp", "rtp", "http", "push", "file")
_KINDS = {
    "": "file",
    "file": "file",
    "http": "http",
    "https": "http",
    "push": "push",
    "rtsp": "rtsp",
    "rtsps": "rtsp",
    "rtp": "rtp",
}
_UNSUPPORTED = ("rtsp", "rtp")


class SourceError(ValueError):
    """A source that cannot be opened as declared; the text is for people and holds no password."""


@dataclass(frozen=True)
class Declared:
    """A source taken apart. `address` holds no credentials."""

    kind: str  # "http", "file" or "push"
    address: str  # URL or path
    user: str = ""
    password: str = ""


def redact(source: str) -> str:
    """`source` without its user and password, for people and logs."""
    try:
        return urlunsplit(_without_credentials(urlsplit(source)))
    except ValueError:
        return source.rpartition("@")[2]


def declared(source: str) -> Declared:
    """Take `source` apart; SourceError where it is no source, or one of a kind that this version does not have.

    An empty source and `push:` mean that the camera's frames are pushed; a plain path means a file.
    """
    if source in {"", "push", "push:", "push://"}:
        return Declared("push", "")
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError as error:
        raise SourceError(f'source "{redact(source)}" is not a URL: {error}') from error
    kind = _KINDS.get(parts.scheme.lower())
    if kind is None:
        raise SourceError(f'source "{redact(source)}" is not one of {", ".join(SCHEMES)}')
    if kind in _UNSUPPORTED:
        raise SourceError(f"{kind} sources are not supported by this version")
    if kind == "push":
        return Declared("push", "")
    if kind == "file":
        path = source if not parts.scheme else unquote(parts.path)
        if not path or (parts.scheme and parts.netloc not in {"", "localhost"}):
            raise SourceError(f'source "{source}" names no file of this machine: write file:///path or /path')
        return Declared("file", path)
    if not parts.hostname or port == 0:
        raise SourceError(f'source "{redact(source)}" names no host')
    return Declared(
        kind, urlunsplit(_without_credentials(parts)), unquote(parts.username or ""), unquote(parts.password or "")
    )


def _without_credentials(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])
