import pytest

from embereye.process.reason import reason_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("the port\n  is taken"), "the port is taken"),
        (TimeoutError(), "timed out"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_every_error_has_a_reason_in_one_line(error: Exception, words: str) -> None:
    assert reason_of(error) == words
