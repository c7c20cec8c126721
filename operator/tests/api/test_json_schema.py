import subprocess
import sys


def test_the_operator_imports_no_unused_format_checkers():
    program = "import sys, embereye_operator.process; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "jsonschema" in loaded
    assert {"rfc3987_syntax", "lark", "isoduration", "webcolors"}.isdisjoint(loaded)
