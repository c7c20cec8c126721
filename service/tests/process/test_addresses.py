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
    """A restarted shard finds its port free, because the system gives other ports to connections."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest < 11_000:
        pytest.skip(f"this machine's system hands out ports from {lowest} on")
    assert all(port < lowest for port in free_ports(50))


def test_free_ports_differ_and_have_no_listener():
    with socket.create_server((LOOPBACK, free_ports(1)[0])) as server:
        listened_on = server.getsockname()[1]
        ports = free_ports(60, taken=range(10_000, 20_000))
        assert len(set(ports)) == 60
        assert not any(port < 20_000 or port == listened_on for port in ports)


def test_a_port_with_a_listener_is_skipped(monkeypatch):
    with socket.create_server((LOOPBACK, 0)) as server:
        monkeypatch.setattr(addresses, "_candidates", lambda: iter([server.getsockname()[1]]))
        assert server.getsockname()[1] not in free_ports(2)


def test_the_system_chooses_ports_if_nearly_all_are_in_its_range(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "1024\t65535\n")
    assert len(set(free_ports(3, kind=socket.SOCK_DGRAM))) == 3


def test_ports_are_chosen_from_the_configured_range(monkeypatch):
    first = free_ports(1)[0]
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 40}")
    assert set(free_ports(3)) < set(range(first, first + 41))
    with pytest.raises(UserError, match="has fewer than 50 free ports"):
        free_ports(50)


def test_a_recently_returned_port_is_returned_again_only_after_all_others(monkeypatch):
    first = free_ports(1)[0]
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 40}")
    before = set(free_ports(12))
    assert before.isdisjoint(free_ports(12))
    assert free_ports(4), "what is left is given out twice rather than not at all"


@pytest.mark.parametrize("text", ["20000", "-", "20000-", "21000-20000", "80-90", "60000-70000", "x-y"])
def test_an_invalid_range_of_ports_is_refused(text, monkeypatch):
    monkeypatch.setenv(PORTS_VARIABLE, text)
    with pytest.raises(UserError, match="is not a range of ports: write for example 20000-20999"):
        free_ports(1)
