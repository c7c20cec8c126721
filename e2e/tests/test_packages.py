"""Programs that tests talk to are installed without their services; a policy of the machine's own is left alone."""

import os
import subprocess
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "cluster" / "packages"
# Debian's programs, as far as the script uses them: apt-get notes whether services may start while it installs.
FAKES = {
    "dpkg": '[ "$1" != --listfiles ] || echo "/lib/systemd/system/$2.service"',
    "dpkg-query": 'echo "installed ffmpeg"',
    "apt-get": '[ "$1" = update ] || { cat "$EMBEREYE_POLICY_RC_D" || echo "services start"; } 2>/dev/null >>"$CALLS"',
    "systemctl": 'echo "$*" >>"$CALLS"',
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name, script in FAKES.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"EMBEREYE_POLICY_RC_D": f"{tmp_path}/policy-rc.d", "CALLS": f"{tmp_path}/calls"}
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}


def test_services_of_new_packages_neither_start_now_nor_at_the_next_boot(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    subprocess.run([PACKAGES, "--without-services", "ffmpeg", "prometheus"], env=environment, check=True)
    assert (tmp_path / "calls").read_text() == "#!/bin/sh\nexit 101\n--quiet disable prometheus.service\n"
    assert not (tmp_path / "policy-rc.d").exists()


def test_a_policy_that_the_machine_has_is_kept(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "policy-rc.d").write_text("the machine's own")
    subprocess.run([PACKAGES, "--without-services", "ffmpeg"], env=environment, check=True)
    assert (tmp_path / "policy-rc.d").read_text() == "the machine's own"


def test_a_daemon_that_is_to_run_is_left_to_its_package(tmp_path: Path, environment: dict[str, str]) -> None:
    subprocess.run([PACKAGES, "docker.io"], env=environment, check=True)
    assert (tmp_path / "calls").read_text() == "services start\n"
