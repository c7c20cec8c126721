"""YAML that people write: refused where something in it would be lost, or would stop whoever reads it."""

from typing import Any

import yaml

DEEPEST = 100  # of values in each other; libyaml takes minutes for a hundred thousand, and ends the process
MOST = 1_000_000  # values that a document may have once its aliases are written out
MERGE = "tag:yaml.org,2002:merge"  # of the key <<


class DocumentError(ValueError):
    """What is wrong and where; the name of the file goes before it."""


def read_documents(content: bytes | str) -> list[Any]:
    """The values of a YAML or JSON file, one for each document; DocumentError.

    Bytes are UTF-8, or UTF-16 that begins with its byte order mark.
    """
    try:
        _check_depth(content)
        loader = _Loader(content)
        try:
            return list(_constructed(loader))
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        raise DocumentError(
            f"it is not YAML: byte {error.position}: {error.reason}; it has to be text in UTF-8"
        ) from error
    except yaml.MarkedYAMLError as error:
        raise DocumentError(f"it is not YAML: {_sentence(error)}") from error


def read_document(content: bytes | str) -> Any:
    """The value of a file that holds one, None where it holds none; DocumentError."""
    documents = read_documents(content)
    if len(documents) > 1:
        raise DocumentError(f"it holds {len(documents)} documents where one is wanted: leave out what begins with ---")
    return documents[0] if documents else None


# The safe loader in C: a list of thousands of devices is read while other fleets wait.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Its value; DocumentError where it is none of the type that its tag or its form says."""
        try:
            return super().construct_object(node, deep)
        except DocumentError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind, value = node.tag.rpartition(":")[2], str(node.value)[:40]
            raise DocumentError(f'{_line(node)}: "{value}" is no {kind}: put it into quotes if it is text') from error


def _check_depth(content: bytes | str) -> None:
    depth = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise DocumentError(f"{_line(event)}: more than {DEEPEST} values are in each other")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _constructed(loader: _Loader) -> Any:
    while loader.check_node():
        node = loader.get_node()
        _Check().count(node)
        yield loader.construct_document(node)


class _Check:
    """Looks at each node of a document once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # by the node's id; 0 while what is in it is looked at

    def count(self, node: yaml.Node) -> int:
        """How many values `node` has with its aliases written out; DocumentError."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        if (known := self._sizes.get(id(node))) is not None:
            if not known:
                raise DocumentError(f"{_line(node)}: an alias stands inside of what it stands for")
            return known
        self._sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
            size = 1 + sum(self.count(key) + self.count(value) for key, value in node.value)
        else:
            size = 1 + sum(map(self.count, node.value))
        if size > MOST:
            raise DocumentError(f"{_line(node)}: its aliases stand for more than {MOST:,} values")
        self._sizes[id(node)] = size
        return size


def _refuse_repeated_keys(node: yaml.MappingNode) -> None:
    seen: dict[tuple[str, str], yaml.Node] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
            continue
        first = seen.setdefault((key.tag, key.value), key)
        if first is not key:
            before = f"{_line(first)} has it, too" if _line(first) != _line(key) else "leave one out"
            raise DocumentError(f'{_line(key)}: the key "{key.value}" is there twice: {before}')


def _line(where: Any) -> str:  # a node or an event
    return f"line {where.start_mark.line + 1}"


def _sentence(error: yaml.MarkedYAMLError) -> str:
    begun = error.context_mark
    mark = error.problem_mark or begun
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    context = f"{error.context} that begins in line {begun.line + 1}" if error.context and begun else error.context
    return where + ", ".join(part for part in (context, error.problem) if part)
