import pytest

from embereye.process.admission import Admission


def test_connections_beyond_the_limit_are_refused_and_counted() -> None:
    admission: Admission[int] = Admission(2)
    assert [admission.admit(number) for number in range(3)] == [True, True, False]
    assert (len(admission), admission.refused) == (2, 1)
    admission.forget(0)
    admission.forget(0)
    assert admission.admit(3)
    assert list(admission) == [1, 3]


@pytest.mark.parametrize("other", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_one_client_gets_at_most_half_of_the_connections(other: str) -> None:
    admission: Admission[int] = Admission(4)
    assert [admission.admit(number, address) for number, address in enumerate(["10.0.0.1", other, other])] == [
        True, True, False,
    ]  # fmt: skip
    assert admission.admit(4, "10.0.0.2")


def test_room_is_made_at_the_client_that_has_too_many_else_anywhere() -> None:
    asked: list[str] = []

    def make_room(client: str) -> bool:
        asked.append(client)
        admission.forget(next(iter(admission)))
        return True

    admission: Admission[int] = Admission(4, make_room=make_room)
    for number in range(3):
        assert admission.admit(number, "10.0.0.1")
    assert (asked, list(admission)) == (["10.0.0.1"], [1, 2])
    for number in range(3, 6):
        assert admission.admit(number, f"10.0.0.{number}")
    assert (asked, list(admission)) == (["10.0.0.1", ""], [2, 3, 4, 5])
