"""The access rules of a fleet (spec.access), without a network."""

import os
from pathlib import Path

import pytest

from embereye.shard.access import EVERYTHING, DeviceAccess, Grant, Names, NotAdmittedError
from embereye.v1.shard_pb2 import AccessRules, ClientCertificates

ALL, ONE = "a-token-for-every-device", "a-token-for-one-device"


class Steady:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(token: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "x"), ("authorization", f"Bearer {token}")]


def secret(folder: Path, token: str = "", devices: str = "") -> None:
    place = folder / "devices-of-hall"
    place.mkdir(exist_ok=True)
    for name, text in (("token", token), ("devices", devices)):
        (place / name).write_text(text)
        os.utime(place / name, ns=(0, hash(text) & 0xFFFF_FFFF))


def access(folder: Path, rules: AccessRules | None, steady: Steady | None = None) -> DeviceAccess:
    made = DeviceAccess(str(folder), steady or Steady())
    made.configure(rules)
    return made


@pytest.mark.parametrize("rules", [None, AccessRules(open=True)])
def test_a_fleet_without_rules_or_with_open_ones_admits_every_device(tmp_path: Path, rules: AccessRules | None) -> None:
    admitted = access(tmp_path, rules)
    admitted.check_text("203.0.113.9")
    assert admitted.check_call("203.0.113.9", ()) == EVERYTHING


def test_a_text_device_is_admitted_only_from_a_named_network(tmp_path: Path) -> None:
    admitted = access(tmp_path, AccessRules(networks=["10.1.0.0/16", "fd00:1::/64"]))
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5", "127.0.0.1", "::1"):
        admitted.check_text(host)
        assert admitted.check_call(host, ()) == EVERYTHING
    for host in ("10.2.2.3", "fd00:2::5", "unknown", ""):
        with pytest.raises(NotAdmittedError, match=r"spec\.access\.networks"):
            admitted.check_text(host)
        with pytest.raises(NotAdmittedError):
            admitted.check_call(host, ())
    assert admitted.refused == 8
    wrong = access(tmp_path, AccessRules(networks=["10.0.0.0/99"]))  # which no schema can refuse
    with pytest.raises(NotAdmittedError):
        wrong.check_call("10.0.0.1", ())


def test_a_text_device_cannot_authenticate_by_a_token(tmp_path: Path) -> None:
    with pytest.raises(NotAdmittedError, match="without a certificate cannot authenticate"):
        access(tmp_path, AccessRules(tokens="devices-of-hall")).check_text("127.0.0.1")


def test_a_sender_needs_a_token_of_the_fleet_or_of_its_device(tmp_path: Path) -> None:
    secret(tmp_path, f"{ALL}\n", f"s-01 {ONE}\nbroken line of words\ns-02 short\n")
    admitted = access(tmp_path, AccessRules(tokens="devices-of-hall"))
    assert admitted.check_call("10.0.0.1", shown(ALL)) == EVERYTHING
    grant = admitted.check_call("10.0.0.1", shown(ONE))
    assert (grant, grant.is_for("s-01"), grant.is_for("s-02")) == (Grant("s-01"), True, False)
    for token in ("", "short", "another-token-of-some-length", ALL[:-1], f"{ALL}x"):
        with pytest.raises(NotAdmittedError, match="need a token"):
            admitted.check_call("10.0.0.1", shown(token))
    with pytest.raises(NotAdmittedError):
        admitted.check_call("10.0.0.1", None)


def test_a_token_is_rotated_without_a_restart(tmp_path: Path) -> None:
    secret(tmp_path, f"{ALL}\n")
    steady = Steady()
    admitted = access(tmp_path, AccessRules(tokens="devices-of-hall"), steady)
    admitted.check_call("10.0.0.1", shown(ALL))
    secret(tmp_path, f"{ALL}\nthe-token-that-comes-next\n")
    steady.now += 3
    for token in (ALL, "the-token-that-comes-next"):
        admitted.check_call("10.0.0.1", shown(token))
    secret(tmp_path, "the-token-that-comes-next\n")
    steady.now += 3
    with pytest.raises(NotAdmittedError):
        admitted.check_call("10.0.0.1", shown(ALL))


def test_tokens_of_a_removed_secret_stay_valid_but_a_missing_one_admits_nobody(tmp_path: Path) -> None:
    steady = Steady()
    admitted = access(tmp_path, AccessRules(tokens="devices-of-hall"), steady)
    with pytest.raises(NotAdmittedError, match="is not mounted"):
        admitted.check_call("10.0.0.1", shown(ALL))
    secret(tmp_path, f"{ALL}\n")
    steady.now += 3
    admitted.check_call("10.0.0.1", shown(ALL))
    for name in ("token", "devices"):
        (tmp_path / "devices-of-hall" / name).unlink()
    steady.now += 3
    admitted.check_call("10.0.0.1", shown(ALL))


def test_a_restored_secret_is_no_longer_reported_as_missing(tmp_path: Path) -> None:
    secret(tmp_path, f"{ALL}\n")
    steady = Steady()
    admitted = access(tmp_path, AccessRules(tokens="devices-of-hall"), steady)
    mounted, away = tmp_path / "devices-of-hall", tmp_path / "away"
    for source, target, why in ((mounted, away, "is not mounted"), (away, mounted, "this one has none that is valid")):
        admitted.check_call("10.0.0.1", shown(ALL))
        source.rename(target)
        steady.now += 3
        with pytest.raises(NotAdmittedError, match=why):
            admitted.check_call("10.0.0.1", shown("a-token-that-nobody-knows"))


def test_only_other_rules_count_as_a_change(tmp_path: Path) -> None:
    admitted = DeviceAccess(str(tmp_path))
    assert not admitted.configure(None)
    assert not admitted.configure(AccessRules(open=True))
    assert admitted.configure(AccessRules(networks=["10.0.0.0/8"]))
    assert not admitted.configure(AccessRules(networks=["10.0.0.0/8"]))
    assert admitted.configure(None)


CERTIFIED = ClientCertificates(
    field=ClientCertificates.FIELD_DNS, match="*.devices.example.org", gateways=["gw.example.org"]
)


def named(*names: str) -> Names:
    return {ClientCertificates.FIELD_DNS: names, ClientCertificates.FIELD_COMMON_NAME: ("s-09",)}


def test_a_certificate_is_for_its_named_device_and_a_gateways_for_all(tmp_path: Path) -> None:
    admitted = access(tmp_path, AccessRules(certificates=CERTIFIED))
    names = named("other.example.org", "s-01.devices.example.org")
    assert admitted.check_call("10.0.0.1", None, names) == Grant("s-01")
    assert admitted.check_text("10.0.0.1", names) == Grant("s-01")
    assert admitted.check_call("10.0.0.1", None, named("gw.example.org")) == EVERYTHING
    for wrong in (
        (),
        (".devices.example.org",),
        ("s-01.example.org",),
        ("a.devices.example.org", "b.devices.example.org"),
    ):
        with pytest.raises(NotAdmittedError, match="need a certificate with one dns like"):
            admitted.check_call("10.0.0.1", None, named(*wrong))
    with pytest.raises(NotAdmittedError, match="need a certificate"):
        admitted.check_call("127.0.0.1", None)
    with pytest.raises(NotAdmittedError, match="without a certificate"):
        admitted.check_text("127.0.0.1")


def test_all_access_rules_have_to_be_met_together(tmp_path: Path) -> None:
    secret(tmp_path, f"{ALL}\n", f"s-01 {ONE}\n")
    rules = AccessRules(tokens="devices-of-hall", networks=["10.0.0.0/8"], certificates=CERTIFIED)
    admitted = access(tmp_path, rules)
    mine, others = named("s-01.devices.example.org"), named("s-02.devices.example.org")
    assert admitted.check_call("10.0.0.1", shown(ONE), mine) == Grant("s-01")
    assert admitted.check_call("10.0.0.1", shown(ALL), mine) == Grant("s-01")
    assert admitted.check_call("10.0.0.1", shown(ONE), named("gw.example.org")) == Grant("s-01")
    for host, token, names in (("192.0.2.1", ONE, mine), ("10.0.0.1", "", mine), ("10.0.0.1", ONE, named())):
        with pytest.raises(NotAdmittedError):
            admitted.check_call(host, shown(token), names)
    with pytest.raises(NotAdmittedError, match='certificate is for "s-02", but the token for "s-01"'):
        admitted.check_call("10.0.0.1", shown(ONE), others)


def test_an_invalid_network_admits_nobody_even_with_credentials(tmp_path: Path) -> None:
    rules = AccessRules(networks=["fd00:1/64"], certificates=CERTIFIED)
    admitted, names = access(tmp_path, rules), named("s-01.devices.example.org")
    with pytest.raises(NotAdmittedError, match=r"10\.0\.0\.1 is not in a network"):
        admitted.check_text("10.0.0.1", names)
    with pytest.raises(NotAdmittedError, match=r"10\.0\.0\.1 is not in a network"):
        admitted.check_call("10.0.0.1", None, names)
