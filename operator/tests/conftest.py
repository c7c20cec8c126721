"""Fixtures for the operator's tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.apiserver import ApiServer, wait_for

from embereye.process.addresses import free_port

from .faulty import FaultyServer
from .site import Site
from .test_operator import answers


@pytest.fixture
def site(cluster: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Site]:
    log = tmp_path / "log"
    port = free_port()
    with FaultyServer(cluster, tmp_path) as proxy:
        command = [sys.executable, "-m", "embereye_operator.simulated", "--image=test", "--hub=127.0.0.1:9",
                   f"--namespace={namespace}", f"--health-port={port}"]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**os.environ, "KUBECONFIG": str(proxy.kubeconfig)}, stdout=out, stderr=out
            )
        try:
            site = Site(cluster, namespace, proxy, log, port)
            wait_for(lambda: answers(port), "an operator that answers")
            site.heals(2, 20)
            yield site
            assert process.poll() is None, "it lives on"
            wait_for(lambda: answers(port), "an operator that is well")
        finally:
            process.kill()
            process.wait(10)
