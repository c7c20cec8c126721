"""Pinned packages install on the oldest system that README.md names, not just on the machine that pinned them."""

from importlib.metadata import PackageNotFoundError, metadata

import pytest
from harness.need import ROOT
from packaging.specifiers import SpecifierSet

DEBIAN_12 = "3.11.2"  # its Python


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_every_pinned_package_accepts_the_python_of_debian_12(file: str) -> None:
    refused = {}
    for line in (ROOT / file).read_text().splitlines():
        name, pinned, _ = line.partition("==")
        if not pinned or line.startswith((" ", "#")):
            continue
        try:
            needed = metadata(name)["Requires-Python"]
        except PackageNotFoundError:  # of another system, by the requirement's marker
            continue
        if needed and DEBIAN_12 not in SpecifierSet(needed):
            refused[line.removesuffix(" \\")] = needed
    assert not refused
