"""A signed file is valid only as it was written, and a chain only without a missing day."""

import random
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.process.lifecycle import UserError
from embereye.process.signing import digest, open_sealed, prepare_key, public_key, seal, verify_chain

PRIVATE, OTHER = bytes(range(32)), bytes(32)
KEY = public_key(PRIVATE)


def sign(day: str, previous: str, private: bytes = PRIVATE, **changed: object) -> bytes:
    return seal({"day": day, "site": "mill", "previous": previous, **changed}, private)


def chain(days: int, private: bytes = PRIVATE) -> dict[str, bytes]:
    """Days from 27 November 2026 on, by file name."""
    files, previous = dict[str, bytes](), ""
    for number in range(days):
        day = f"2026-11-{27 + number}" if number < 4 else f"2026-12-{number - 3:02}"
        data = sign(day, previous, private, zones=[{"zone": "Küche", "seconds": 86_400}])
        files[f"{day}.json"], previous = data, digest(data)
    return files


def test_a_chain_over_a_month_is_valid_and_complete() -> None:
    verdict = verify_chain(chain(8), [KEY])
    assert (verdict.is_valid, verdict.begins, len(verdict.days)) == (True, True, 8), verdict.problems


def test_every_changed_byte_of_a_file_is_noticed() -> None:
    files = chain(3)
    data, draw = files["2026-11-28.json"], random.Random(55)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << draw.randrange(8)
        verdict = verify_chain({**files, "2026-11-28.json": bytes(changed)}, [KEY])
        assert not verdict.is_valid, (position, bytes(changed[max(0, position - 9) : position + 9]))


@given(st.data())
def test_any_edit_of_a_file_is_noticed(data: st.DataObject) -> None:
    files = chain(2)
    original = files["2026-11-28.json"]
    begin = data.draw(st.integers(0, len(original)))
    end = data.draw(st.integers(begin, min(begin + 8, len(original))))
    edited = original[:begin] + data.draw(st.binary(max_size=8)) + original[end:]
    if edited != original:
        assert not verify_chain({**files, "2026-11-28.json": edited}, [KEY]).is_valid


@pytest.mark.parametrize("missing", range(1, 7))
def test_a_missing_day_is_named(missing: int) -> None:
    files = chain(8)
    name = sorted(files)[missing]
    del files[name]
    verdict = verify_chain(files, [KEY])
    assert verdict.problems == [f"{name.removesuffix('.json')}: is missing"]


def test_a_day_signed_again_breaks_the_chain() -> None:
    files = chain(3)
    first = digest(files["2026-11-27.json"])
    files["2026-11-28.json"] = sign("2026-11-28", first)
    assert verify_chain(files, [KEY]).problems == [
        "2026-11-29.json: does not follow 2026-11-28.json: it has the hash of another file"
    ]


def test_a_statement_of_another_key_site_or_day_twice_is_a_problem() -> None:
    files = chain(2)
    assert "is signed by another key" in verify_chain(chain(2, OTHER), [KEY]).problems[0]
    other = sign("2026-11-28", digest(files["2026-11-27.json"]), site="yard")
    (problem,) = verify_chain({**files, "2026-11-28.json": other}, [KEY]).problems
    assert "belongs to another site" in problem
    (problem,) = verify_chain({**files, "copy.json": files["2026-11-28.json"]}, [KEY]).problems
    assert "is a second statement of 2026-11-28" in problem


def test_a_key_that_was_changed_needs_both_keys() -> None:
    files = chain(1)
    files["2026-11-28.json"] = sign("2026-11-28", digest(files["2026-11-27.json"]), OTHER)
    assert not verify_chain(files, [KEY]).is_valid
    assert verify_chain(files, [KEY, public_key(OTHER)]).is_valid


def test_a_chain_without_its_first_day_says_so() -> None:
    files = chain(3)
    del files["2026-11-27.json"]
    verdict = verify_chain(files, [KEY])
    assert (verdict.is_valid, verdict.begins) == (True, False)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"key":1,"signature":2,"statement":3}', b"\xff", b"[" * 100_000])
def test_other_files_are_refused_in_words(data: bytes) -> None:
    verdict = verify_chain({"x": data}, [KEY])
    assert not verdict.is_valid
    assert verdict.problems[0].startswith("x: is not")


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "statement-key"
    private = prepare_key(file, "--statement-key")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert prepare_key(file, "--statement-key") == private
    signed = sign("2026-11-27", "", private)
    assert open_sealed(signed, [public_key(private)])["site"] == "mill"


def test_a_key_of_openssl_is_accepted(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, file = Ed25519PrivateKey.generate(), tmp_path / "key.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    assert public_key(prepare_key(file, "--statement-key")) == key.public_key().public_bytes_raw().hex()


@pytest.mark.parametrize("content", ["", "hello", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "é"])
def test_a_file_without_a_key_is_refused_with_a_remedy(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(UserError, match="--statement-key"):
        prepare_key(file, "--statement-key")
