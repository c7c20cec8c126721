import socket
from pathlib import Path

import pytest

from embereye.process import addresses
from embereye.process.addresses import LOOPBACK, PORTS_VARIABLE, free_ports
from embereye.process.lifecycle import UserError


@pytest.fixture(autouse=True)
def _untold(monkeypatch):
    monkeypatch.delenv(PORTS_VARIABLE, raising=False)


def test_no_connection_takes_a_free_port_before_it_is_listened_on():
    """Who restarts a shard on its port finds the port as it was left: the system hands out others."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest < 11_000:
        pytest.skip(f"this machine's system hands out ports from {lowest} on")
    assert all(port < lowest for port in free_ports(50))


def test_free_ports_differ_and_are_listened_on_by_nobody():
    with socket.create_server((LOOPBACK, free_ports(1)[0])) as server:
        listened_on = server.getsockname()[1]
        found = free_ports(60, taken=range(10_000, 20_000))
        assert len(set(found)) == 60
        assert not any(port < 20_000 or port == listened_on for port in found)


def test_a_port_that_is_listened_on_is_passed_over(monkeypatch):
    with socket.create_server((LOOPBACK, 0)) as server:
        monkeypatch.setattr(addresses, "_candidates", lambda: iter([server.getsockname()[1]]))
        assert server.getsockname()[1] not in free_ports(2)


def test_where_the_system_hands_out_nearly_all_ports_it_is_asked_for_some(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "1024\t65535\n")
    assert len(set(free_ports(3, kind=socket.SOCK_DGRAM))) == 3


def test_ports_are_chosen_from_those_told(monkeypatch):
    first = free_ports(1)[0]
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 40}")
    assert set(free_ports(3)) < set(range(first, first + 41))
    with pytest.raises(UserError, match="has not 50 ports that are free"):
        free_ports(50)


def test_a_port_that_may_not_be_listened_on_yet_is_not_given_out_again_before_all_others(monkeypatch):
    first = free_ports(1)[0]
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 40}")
    before = set(free_ports(12))
    assert before.isdisjoint(free_ports(12))
    assert free_ports(4), "what is left is given out twice rather than not at all"


@pytest.mark.parametrize("text", ["20000", "-", "20000-", "21000-20000", "80-90", "60000-70000", "x-y"])
def test_what_is_no_range_of_ports_is_refused(text, monkeypatch):
    monkeypatch.setenv(PORTS_VARIABLE, text)
    with pytest.raises(UserError, match="is no range of ports: write for example 20000-20999"):
        free_ports(1)
