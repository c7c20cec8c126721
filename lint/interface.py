"""Compare the metrics and the hub's HTTP interface with those of another revision.

Run it as `python -m lint.interface REVISION` from the project's root. It prints one line for each difference, then
their number, and exits with 1 if there is any. A separate Python reads each of the two trees. The other one is exported
to a temporary folder, where its protos are compiled.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SOURCES = ("service", "operator")
# Prints the declarations of every module and add-on, as they are independent of options.
READ = """
import json, sys
from embereye.hub.http.openapi.describe import describe
from embereye.hub.http.route import declared
from embereye.process.addons import addon_modules
from embereye_operator.monitoring.metrics import metrics

kinds = {
    each.name: {
        "type": each.type, "labels": sorted(each.labels), "unit": each.unit, "help": each.help,
        "exporters": sorted(each.exporters),
    }
    for each in metrics()
}
schemas = {}
for module in addon_modules("http"):
    schemas.update(module.schemas() if hasattr(module, "schemas") else {})
    schemas.update({"Actuator": module.actuator_schema()} if hasattr(module, "actuator_schema") else {})
modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("embereye.")]
classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
routes = [route for each in classes for route in declared(each).values()]
document = describe(sorted(routes, key=lambda route: (route.path, route.method)), schemas)
del document["info"]
print(json.dumps({"metrics": kinds, "http": document}))
"""


def interface(root: Path) -> Any:
    """Return the metrics and the HTTP interface that the tree at `root` declares."""
    # -S: this checkout is not on the path.
    path = os.pathsep.join((*(str(root / name) for name in SOURCES), sysconfig.get_path("purelib")))
    command = [sys.executable, "-S", "-c", READ]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def export(revision: str, folder: Path) -> None:
    """Write the files of `revision` to `folder`, with the modules that are made of its protos."""
    archive = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    subprocess.run([sys.executable, "setup.py", "protos"], cwd=folder, check=True)


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Yield a sentence for each value that differs; the order of fields does not count."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        if before != after:
            yield f"{place}: {json.dumps(before)} is now {json.dumps(after)}"
        return
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{place}/{name}: is gone"
        elif name not in before:
            yield f"{place}/{name}: is new"
        else:
            yield from differences(before[name], after[name], f"{place}/{name}")


def main() -> int:
    """Compare from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REVISION", help="the other revision, such as main or HEAD~3")
    with tempfile.TemporaryDirectory() as folder:
        export(parser.parse_args().revision, Path(folder))
        sentences = list(differences(interface(Path(folder)), interface(Path.cwd())))
    if sentences:
        print(*sentences, sep="\n")
    print(f"{len(sentences)} differences")
    return 1 if sentences else 0


if __name__ == "__main__":
    raise SystemExit(main())
