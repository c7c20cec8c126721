"""What people are told of a fleet, and how often."""

from embereye_operator.event_book import BURST, REFILL, REPEAT, EventBook

SECOND = 1_000_000_000


def note(book: EventBook, message: str = "quota", subject: str = "hall", second: int = 0) -> None:
    book.note(subject, "Warning", "ApplyRefused", message, second * SECOND)


def write(book: EventBook, now: float) -> list[tuple[str, int]]:
    written = []
    for entry in book.due(now):
        written.append((entry.message, entry.count))
        book.wrote(entry, entry.count, now)
    return written


def test_what_happens_again_raises_a_count_now_and_then() -> None:
    book, written = EventBook(), []
    for second in range(0, 3 * int(REPEAT), 2):
        note(book, second=second)
        written += [(second, entry) for entry in write(book, second)]
    assert [second for second, _ in written] == [0, REPEAT, 2 * REPEAT]
    assert [count for _, (_, count) in written] == [1, 1 + REPEAT / 2, 1 + REPEAT]


def test_what_could_not_be_written_stays_due_and_none_of_it_is_lost() -> None:
    book = EventBook()
    note(book, "one")
    note(book, "two")
    note(book, "one")
    assert [entry.message for entry in book.due(0)] == ["one", "two"]
    assert write(book, 30) == [("one", 2), ("two", 1)]
    assert not book.due(31)


def test_what_happens_while_it_is_written_is_written_later() -> None:
    book = EventBook()
    note(book)
    (entry,) = book.due(0)
    note(book, second=1)
    book.wrote(entry, 1, 1)
    assert not book.due(2)
    assert write(book, 1 + REPEAT) == [("quota", 2)]


def test_a_subject_with_ever_new_messages_is_told_of_in_measure_and_others_at_once() -> None:
    book = EventBook()
    for number in range(3 * BURST):
        note(book, f"message {number}")
    note(book, "other", subject="yard")
    assert len(write(book, 0)) == BURST + 1
    assert write(book, 1) == []
    assert len(write(book, REFILL)) == 1
    assert len(write(book, 30 * REFILL)) == BURST
    assert not book.lost
