import pytest

from embereye.process.http.retry_after import retry_seconds

NOW = 784_111_777.0  # 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0), (" 7 ", 7.0), ("0", 0.0), ("", 0.0), ("soon", 0.0), ("-5", 0.0), ("1.5", 0.0), ("٣", 0.0),
        ("Sun, 06 Nov 1994 08:50:07 GMT", 30.0),
        ("Sunday, 06-Nov-94 08:50:07 GMT", 30.0),
        ("Sun Nov  6 08:50:07 1994", 30.0),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0.0),
        ("Sun, 99 Nov 1994 08:49:07 GMT", 0.0),
        ("Sun, 06 Nov 99999999999 08:49:07 GMT", 0.0),
    ],
)  # fmt: skip
def test_a_server_requests_a_delay_in_seconds_or_by_a_date(value: str, seconds: float) -> None:
    assert retry_seconds(value, NOW) == seconds
