"""Parse XML from untrusted senders into a small tree. Document types are refused, so no entity is expanded or fetched.

Cameras write a bare & in addresses, control characters in names, text around the document, and bytes that are not in
the declared encoding. If the first reading fails, such bytes are repaired for a second one.

Names lose their namespaces, which cameras confuse. `xml.etree` cannot refuse a document type, so expat is used.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 64  # nested elements; ONVIF's answers have a dozen
MAX_ELEMENTS = 50_000
_CONTROL = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
    r"|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|x0*(?:1?[0-8bcef]|1[9ad]));",
    re.IGNORECASE,
)
# An & that begins no known reference.
_BARE = re.compile(r"&(?!(?:#\d+|#x[0-9a-f]+|amp|lt|gt|quot|apos);)", re.IGNORECASE)
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")
# Beginnings of the names of those that cameras use.
_ENCODINGS = ("gb", "big5", "shift_jis", "euc", "iso-8859", "windows-125", "koi8")
_ENCODING = re.compile(rb"<\?xml\b[^>]*\bencoding\s*=\s*[\"']([\w.:-]+)")


class XmlError(ValueError):
    """The XML is malformed or refused; the text says why."""


class _MalformedError(XmlError):
    """The XML is malformed, but perhaps repairable."""


@dataclass(eq=False, slots=True)
class Element:
    """One element; `text` is its content without `children` and without surrounding blanks."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, *names: str) -> Iterator["Element"]:
        """Yield the descendants named one of `names`, at any depth, in document order."""
        waiting = self.children[::-1]
        while waiting:
            element = waiting.pop()
            if element.name in names:
                yield element
            waiting += reversed(element.children)

    def first(self, *path: str) -> "Element | None":
        """The first descendant on `path`, names from the outside in; other elements may be in between."""
        element: Element | None = self
        for name in path:
            element = next(element.all(name), None) if element else None
        return element

    def value(self, *path: str) -> str:
        """The text of the first descendant on `path`; '' if there is none."""
        element = self.first(*path)
        return element.text if element else ""


def parse(data: bytes) -> Element:
    """The root element of `data`. XmlError if it is malformed, has a document type, or is too large or too deep.

    Text around the root, control characters, a bare & and a wrong encoding are no reason to refuse it.
    """
    try:
        return _read(data)
    except _MalformedError:
        return _read(_repaired(data))


def _repaired(data: bytes) -> bytes:
    """Drop text before the document and control characters, and escape every & that begins no reference.

    Bytes that are not in the declared encoding are replaced. The result is UTF-8.
    """
    declared = _ENCODING.search(data[:1_000])
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif not encoding.startswith(_ENCODINGS):  # such as UTF-16, in which the declaration itself could not be read
        encoding = "utf-8"
    try:
        text = data.decode(encoding, "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    text = _DECLARATION.sub("", text[max(0, text.find("<")) :], count=1)
    return _BARE.sub("&amp;", _CONTROL.sub("", text)).encode("utf-8", "replace")


def _read(data: bytes) -> Element:
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        if builder.is_complete:  # it is followed by something else
            return builder.root
        raise _MalformedError(f"not XML: {error}") from error
    except (LookupError, ValueError) as error:  # an encoding that Python does not know, or expat cannot use
        raise error if isinstance(error, XmlError) else _MalformedError(f"not XML: {error}") from error
    return builder.root


def _refuse_doctype(*_: object) -> None:
    raise XmlError("it has a document type, which no camera needs")


class _Builder:
    def __init__(self) -> None:
        self.root = Element("")
        self.is_complete = False
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) >= MAX_DEPTH:
            raise XmlError(f"it has more than {MAX_ELEMENTS} elements, or more than {MAX_DEPTH} nested ones")
        element = Element(_local(name), {_local(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def end(self, _: str) -> None:
        self._open.pop().text = "".join(self._texts.pop()).strip()
        self.is_complete = not self._open

    def characters(self, text: str) -> None:
        if self._texts:
            self._texts[-1].append(text)


def _local(name: str) -> str:
    return name.rpartition(":")[2]
