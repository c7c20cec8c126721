"""One S3 bucket, through obstore. Each call is one attempt; every error of the library becomes a PlaceError.

Each object carries its SHA-256 in its metadata, and the service checks another SHA-256 of the transfer, which buckets
with object lock require. Larger objects are sent and read in parts, one after the other: the timeout is for each of
them, so that a slow line still transfers objects of any size.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.places import ObjectError, PlaceError

if TYPE_CHECKING:
    from obstore import GetOptions

CONNECT_SECONDS = 5
PART = 5 * 1024**2  # bytes of one request, the least that S3 allows for parts: 30 s of a line of 1.4 Mbit/s
CODE = re.compile(r"<Code>([^<]{1,80})</Code>")
STATUS = re.compile(r"status: (\d{3})")
MEANINGS = {  # of S3's codes
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "the key lacks the right",
    "InvalidAccessKeyId": "it does not know the access key",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "SlowDown": "it asks for fewer requests",
    "InvalidObjectState": "the object is in an archive tier, and must be retrieved from there first",
}
OF_AN_OBJECT = {"InvalidObjectState"}  # codes that say nothing about other objects


class Bucket:
    """The bucket of `options`."""

    def __init__(self, options: ArchiveOptions, headers: Mapping[str, str] | None = None) -> None:
        """`headers` are sent with each request. PlaceError if the keys cannot be read."""
        seconds = timedelta(seconds=options.timeout)
        try:
            self._store = S3Store(
                options.bucket,
                prefix=options.prefix or None,
                region=options.region,
                checksum_algorithm="SHA256",
                virtual_hosted_style_request=not options.endpoint,
                client_options={
                    "allow_http": options.endpoint.startswith("http://"), "timeout": seconds,
                    "connect_timeout": timedelta(seconds=CONNECT_SECONDS), "default_headers": dict(headers or {}),
                },
                # The caller repeats: it decides about the order, and reports failures.
                retry_config={"max_retries": 0, "retry_timeout": seconds},
                config=self._config(options),
            )  # fmt: skip
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise PlaceError(f"it cannot be used: {_sentence(error)}") from error

    @staticmethod
    def _config(options: ArchiveOptions) -> Any:
        """The endpoint, if one is declared, and the keys. OSError if they cannot be read."""
        return {**({"endpoint": options.endpoint} if options.endpoint else {}), **options.keys()}

    async def put(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """See Place."""
        attributes = _attributes(media, metadata)
        with _translated():
            await obstore.put_async(
                self._store, name, content, attributes=attributes, chunk_size=PART, max_concurrency=1
            )

    def store(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """See Place."""
        attributes = _attributes(media, metadata)
        with _translated():
            obstore.put(self._store, name, content, attributes=attributes, chunk_size=PART, max_concurrency=1)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """See Place."""
        with _translated():
            return sorted((each["path"], each["size"]) for part in obstore.list(self._store, prefix) for each in part)

    def fetch(self, name: str, file: Path) -> dict[str, str]:
        """See Place."""
        start, size, version, about = 0, 1, "", dict[str, str]()
        with file.open("wb") as opened:
            while start < size:
                options: GetOptions = {"range": (start, start + PART)}
                if version:
                    options["if_match"] = version  # all parts are of one object, also if it is replaced meanwhile
                with _translated():
                    result = obstore.get(self._store, name, options=options)
                    size, version = result.meta["size"], result.meta["e_tag"] or ""
                    about = {str(key): unquote(str(value)) for key, value in result.attributes.items()}
                    part = result.bytes()
                opened.write(part)
                start += PART
        return about

    def delete(self, name: str) -> None:
        """See Place."""
        with _translated():
            obstore.delete(self._store, name)


def _attributes(media: str, metadata: Mapping[str, str]) -> Any:
    return {"Content-Type": media, **{key: quote(value, safe=" :/+,()=-") for key, value in metadata.items()}}


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of the library, and of a file that it reads, into PlaceError."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:  # also FileNotFoundError, for a missing bucket
        code = CODE.search(str(error))
        raise (ObjectError if code and code[1] in OF_AN_OBJECT else PlaceError)(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    """The reason in one sentence: S3's code, the status, or what the library says first."""
    text = " ".join(str(error).split())
    if code := CODE.search(text):
        return f"{MEANINGS.get(code[1], 'it refuses')} ({code[1]})"
    if status := STATUS.search(text):
        return f"it answers {status[1]}"
    if "onnect" in text:
        return "it cannot be reached"
    if "imed" in text or "imeout" in text:
        return "no answer in time"
    return text[:200] or type(error).__name__
