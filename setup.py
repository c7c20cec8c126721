"""Compiles the protocol definitions into `embereye.v1` whenever the package is built or installed."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent


def compile_protos() -> None:
    """Write `*_pb2.py`, `*_pb2_grpc.py` and their type stubs beside `service/embereye/v1/__init__.py`."""
    from grpc_tools import protoc

    roots = [ROOT / "protos", *sorted((ROOT / "service/embereye/addons").glob("*/protos"))]
    protos = [str(path.relative_to(root)) for root in roots for path in sorted(root.rglob("*.proto"))]
    out = str(ROOT / "service")
    arguments = ["protoc", *(f"-I{root}" for root in roots), f"--python_out={out}", f"--grpc_python_out={out}"]
    # Only type checking needs the stubs; an isolated build has the plugin beside its Python.
    plugin = shutil.which("protoc-gen-mypy", path=str(Path(sys.executable).parent)) or shutil.which("protoc-gen-mypy")
    if plugin:
        arguments += [f"--plugin=protoc-gen-mypy={plugin}", f"--plugin=protoc-gen-mypy_grpc={plugin}_grpc"]
        arguments += [f"--mypy_out=quiet:{out}", f"--mypy_grpc_out=quiet:{out}"]
    if protoc.main([*arguments, *protos]) != 0:
        raise SystemExit("protos/ does not compile: protoc's message above names the file and line")


class BuildWithProtos(build_py):
    """`build_py` after the protocol definitions are compiled."""

    def run(self) -> None:
        compile_protos()
        super().run()


class SourceWithProtos(sdist):
    """`sdist` after the protocol definitions are compiled, so that their source travels with it."""

    def run(self) -> None:
        compile_protos()
        super().run()


if __name__ == "__main__":
    if sys.argv[1:] == ["protos"]:
        compile_protos()
    else:
        setup(cmdclass={"build_py": BuildWithProtos, "sdist": SourceWithProtos})
