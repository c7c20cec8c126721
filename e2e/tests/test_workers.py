"""Tests in several processes: one that fails or crashes takes no other one with it."""

import subprocess
import sys
from pathlib import Path

import pytest

# Files of one test, and of several; what follows a crash in its file is another one's.
FILES = dict(zip("abcdefgh", [6, 4, 3, 3, 2, 1, 1, 1], strict=True))


@pytest.mark.parametrize("crashing", ["test_a_1", "test_h_0"])
def test_after_a_worker_has_crashed_every_other_test_is_run_once(tmp_path: Path, crashing: str) -> None:
    for name, tests in FILES.items():
        bodies = {f"test_{name}_{number}": "pass" for number in range(tests)}
        bodies |= {crashing: "os._exit(3)"} if crashing in bodies else {}
        text = "".join(f"def {test}():\n    {body}\n" for test, body in bodies.items())
        (tmp_path / f"test_{name}.py").write_text(f"import os\n{text}")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable, "-m", "pytest", "-v", "-p", "harness.workers", "--numprocesses", "2", "--dist", "loadfile"
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"1 failed, {sum(FILES.values()) - 1} passed" in done.stdout
    assert f"crashed while running 'test_{crashing[5]}.py::{crashing}'" in done.stdout


LEAVES_A_SERVER = """
import asyncio, grpc, pytest

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return None

async def serve():
    server = grpc.aio.server(handlers=[Echo()])
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    raise RuntimeError

def test_leaves_a_server():
    with pytest.raises(RuntimeError):
        asyncio.run(serve())
    assert False
"""


def test_a_server_that_a_failed_test_has_left_holds_up_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LEAVES_A_SERVER)
    (tmp_path / "conftest.py").write_text("import gc\n\ndef pytest_runtest_logfinish():\n    gc.collect()\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "harness.workers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
