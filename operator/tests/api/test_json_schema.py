import subprocess
import sys


def test_an_operator_loads_no_checkers_of_formats_that_it_does_not_ask_for():
    program = "import sys, embereye_operator.process; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "jsonschema" in loaded
    assert {"rfc3987_syntax", "lark", "isoduration", "webcolors"}.isdisjoint(loaded)
