"""YAML that people write; rejected if its reader would lose or choke on a part of it.

Manifests, device lists and webhooks are read here, with PyYAML's safe loader. Before any value is built, the document's
depth and the number of its values with expanded aliases are checked, and repeated keys are refused. Errors have the
line and a remedy, and `line_of` finds the line of a field in a validation error.
"""

import re
from typing import Any

import yaml

DEEPEST = 100  # nesting depth; libyaml takes minutes for 100,000 levels, and crashes the process
MOST = 1_000_000  # values in a document with its aliases expanded
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MERGE = "tag:yaml.org,2002:merge"  # of the key <<


class DocumentError(ValueError):
    """An error in a document with its line; callers prepend the name of the file."""


def read_documents(content: bytes | str) -> list[Any]:
    """Return the values of a YAML or JSON file, one for each document; DocumentError.

    Bytes are UTF-8, or UTF-16 with a byte order mark.
    """
    try:
        _check_depth(content)
        loader = _Loader(content)
        try:
            return list(_constructed(loader))
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        raise DocumentError(f"not YAML: byte {error.position}: {error.reason}. Save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        raise DocumentError(f"not YAML: {_sentence(error)}") from error


def read_document(content: bytes | str) -> Any:
    """Return the value of a file with one document, None if it is empty; DocumentError."""
    documents = read_documents(content)
    if len(documents) > 1:
        raise DocumentError(f"{len(documents)} documents instead of one: remove those after ---")
    return documents[0] if documents else None


def line_of(content: bytes | str, document: int, path: str) -> int:
    """Return the line of `path` ("spec.cameras[0].source") in a document; of the closest parent if it is missing.

    `content` is a file that `read_documents` accepts; `document` counts from 0.
    """
    nodes = list(yaml.compose_all(content, _Loader))
    node = nodes[document] if document < len(nodes) else None
    line = int(node.start_mark.line) if node else 0
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            marked = node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode) and (
            pair := next((pair for pair in node.value if pair[0].value == key), None)
        ):
            marked, node = pair
        else:
            break
        line = int(marked.start_mark.line)
    return line + 1


# The safe loader in C: other fleets wait while a list of thousands of devices is read.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the node's value; DocumentError if it does not fit its tag or form."""
        if isinstance(node, yaml.ScalarNode) and ":" in node.value and node.tag in NUMBERS:
            return node.value  # 18:00 is 1080 in YAML 1.1, and a text for Kubernetes and people
        try:
            return super().construct_object(node, deep)
        except DocumentError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind, value = node.tag.rpartition(":")[2], str(node.value)[:40]
            raise DocumentError(
                f'{_line(node)}: "{value}" is not a valid {kind}: put it into quotes if it is text'
            ) from error


def _check_depth(content: bytes | str) -> None:
    depth = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise DocumentError(f"{_line(event)}: nested more than {DEEPEST} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _constructed(loader: _Loader) -> Any:
    while loader.check_node():
        node = loader.get_node()
        _Check().count(node)
        yield loader.construct_document(node)


class _Check:
    """Counts the values of a document, visiting each node once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # by the node's id; 0 while its content is being counted

    def count(self, node: yaml.Node) -> int:
        """Count the values of `node` with its aliases expanded; DocumentError."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        if (known := self._sizes.get(id(node))) is not None:
            if not known:
                raise DocumentError(f"{_line(node)}: an alias is inside its own anchor")
            return known
        self._sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
            size = 1 + sum(self.count(key) + self.count(value) for key, value in node.value)
        else:
            size = 1 + sum(map(self.count, node.value))
        if size > MOST:
            raise DocumentError(f"{_line(node)}: its aliases expand to more than {MOST:,} values")
        self._sizes[id(node)] = size
        return size


def _refuse_repeated_keys(node: yaml.MappingNode) -> None:
    seen: dict[tuple[str, str], yaml.Node] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
            continue
        first = seen.setdefault((key.tag, key.value), key)
        if first is not key:
            before = f"also in {_line(first)}" if _line(first) != _line(key) else "remove one"
            raise DocumentError(f'{_line(key)}: the key "{key.value}" is repeated: {before}')


def _line(where: Any) -> str:  # a node or an event
    return f"line {where.start_mark.line + 1}"


def _sentence(error: yaml.MarkedYAMLError) -> str:
    start = error.context_mark
    mark = error.problem_mark or start
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    context = f"{error.context} that starts in line {start.line + 1}" if error.context and start else error.context
    return where + ", ".join(part for part in (context, error.problem) if part)
