"""Writes the chart's README: every value with its default and its comment in values.yaml. `make golden` runs it."""

from collections.abc import Iterator

import yaml
from harness.cluster.chart import CHART

README = CHART / "README.md"
HEAD = """# {name} {version}

<!-- Written by charts/tests/readme.py; change Chart.yaml and values.yaml instead. -->

{description}
It needs Kubernetes {kubeVersion}.

```
helm install embereye charts/embereye --namespace embereye --create-namespace
helm test embereye --namespace embereye --logs
```
`helm test` declares a sensor, simulates a fire, waits for the alarm and removes the sensor again.
The release installs and upgrades the CustomResourceDefinitions; uninstalling it leaves them. A second release in the
same cluster needs `--set crds.enabled=false` and separate namespaces (`operator.namespaces`).

```
helm upgrade embereye charts/embereye --namespace embereye --reset-then-reuse-values
```
This retains your settings and uses the new chart's defaults for the rest. It needs Helm 3.14 or later; with an older
Helm, repeat all your values (`--values`, `--set`). With `--reuse-values` the old chart's defaults lack new values. The
upgrade is then refused, with the names of the missing values.

In the names of objects, RELEASE is the release's name. One that does not contain `embereye` gets it at the end: the
hub's Service of the release `north` is `north-embereye-hub`.

## Values
| value | default | |
| --- | --- | --- |
"""


def render() -> str:
    """Render the whole page."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    about["kubeVersion"] = about["kubeVersion"].removesuffix("-0").replace(">=", "").removesuffix(".0") + " or later"
    rows = "".join(
        f"| `{path}` | {f'`{default}`' if default else ''} | {text} |\n".replace("  ", " ")
        for path, default, text in values()
    )
    return HEAD.format(**about) + rows


def values() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and comment of every value, and of every group of values with a comment."""
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _mapping_rows(root, "", text.splitlines())


def _mapping_rows(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path, comment = f"{prefix}{key.value}", _comment(lines, key.start_mark.line).replace("|", "\\|")
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if comment:
                yield path, "", comment
            yield from _mapping_rows(value, f"{path}.", lines)
        else:
            start, end = value.start_mark, value.end_mark
            yield path, lines[start.line][start.column : end.column].replace("|", "\\|"), comment


def _comment(lines: list[str], number: int) -> str:
    """The comment above a line, or else behind its value."""
    above = []
    while number and lines[number - 1].lstrip().startswith("#"):
        number -= 1
        above.insert(0, lines[number].strip().lstrip("# "))
    if above:
        return " ".join(above)
    return lines[number].partition(" # ")[2]


if __name__ == "__main__":
    README.write_text(render())
