"""YAML files are read as intended, or refused with the line."""

from typing import Any

import pytest

from embereye_operator.api.documents import DocumentError, read_document, read_documents

DOUBLING = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30))])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("listen:\n  tcp: 1\n  tcp: 2", 'line 3: the key "tcp" is repeated: also in line 2'),
        ('- {id: a, "id": b}', 'line 1: the key "id" is repeated: remove one'),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n  d: 2", 'line 5: the key "d"'),
        ("a: 1\nb: [1,\nc", "line 4, column 1: while parsing a flow sequence that starts in line 2, "),
        ("a: *nobody", "not YAML: line 1, column 4: found undefined alias"),
        ("a: 1\nwhen: 2024-13-45", 'line 2: "2024-13-45" is not a valid timestamp: put it into quotes if it is text'),
        ("a: !!bool maybe", 'line 1: "maybe" is not a valid bool'),
        ("a: " + "9" * 5000, "is not a valid int"),
        ("a: !!python/name:os.system x", "not YAML: line 1, column 4"),
        ("\n[" * 100_000, "line 102: nested more than 100 levels deep"),
        ("a: &a\n  b: [*a]", "line 1: an alias is inside its own anchor"),
        (DOUBLING, "line 19: its aliases expand to more than 1,000,000 values"),
        ("zone: k\u00e4se".encode("latin-1"), "not YAML: byte 8: "),
        (bytes(range(256)), "not YAML: byte 0: control characters are not allowed"),
        (b"a: 1\n---\nb: 2\n", "2 documents instead of one"),
    ],
)
def test_lossy_or_harmful_yaml_is_refused_with_its_line(content: str | bytes, sentence: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(content)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_bytes_are_decoded_as_utf_8_or_utf_16(encoding: str) -> None:
    assert read_documents("zone: k\u00e4se\n---\n- 1".encode(encoding)) == [{"zone": "k\u00e4se"}, [1]]


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}),
        ("a: [&a {b: {<<: &c {d: 1}, d: 2}}]\ne: {<<: *a}", {"a": [{"b": {"d": 2}}], "e": {"b": {"d": 2}}}),
        ('{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ("{a: 1, b: {a: 2}}", {"a": 1, "b": {"a": 2}}),
        ("", None),
    ],
)
def test_aliases_merges_and_json_are_accepted(content: str, value: Any) -> None:
    assert read_document(content) == value
