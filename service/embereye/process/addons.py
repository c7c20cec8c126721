"""Find the modules of add-ons, whose folders may be missing: see `embereye.addons`."""

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

PARENT = "embereye.addons"


def addon_modules(name: str) -> Iterator[ModuleType]:
    """Import the module `name` of each add-on that has one, ordered by add-on."""
    for addon in sorted(info.name for info in pkgutil.iter_modules(importlib.import_module(PARENT).__path__)):
        spec = find_spec(f"{PARENT}.{addon}.{name}")
        if spec and spec.origin:  # a folder of a deleted module, with only __pycache__ in it, has no origin
            yield importlib.import_module(f"{PARENT}.{addon}.{name}")
