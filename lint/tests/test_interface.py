"""Differences between the interfaces of two revisions are named by their place."""

import pytest

from lint.interface import differences


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        ({"a": {"type": "gauge"}}, {"a": {"type": "gauge"}}, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": {"type": "gauge"}}, {"a": {"type": "counter"}}, ['/a/type: "gauge" is now "counter"']),
        ({"a": 1}, {"b": 1}, ["/a: is gone", "/b: is new"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["/a: [1, 2] is now [2, 1]"]),
        ({"a": {}}, {"a": None}, ["/a: {} is now null"]),
    ],
)
def test_each_difference_is_a_sentence_with_its_place(before, after, sentences):
    assert list(differences(before, after)) == sentences
