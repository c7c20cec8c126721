"""The chart's README: every value with its default and what values.yaml says of it. `make golden` writes it anew."""

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
`helm test` declares a sensor, sets it on fire, hears the alarm and removes it again.
CustomResourceDefinitions are installed and upgraded with the release, and kept when it is uninstalled. A second
release in the same cluster takes `--set crds.enabled=false`, and namespaces of its own (`operator.namespaces`).

```
helm upgrade embereye charts/embereye --namespace embereye --reset-then-reuse-values
```
keeps what was set before and takes the new chart's values for all else; it takes Helm 3.14 or later, and an older one
every value again (`--values`, `--set`). `--reuse-values` takes the old chart's values instead, which lack what is new:
it is refused then, with the names of what is missing.

## Values
| value | default | |
| --- | --- | --- |
"""


def render() -> str:
    """The whole page."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    about["kubeVersion"] = about["kubeVersion"].removesuffix("-0").replace(">=", "").removesuffix(".0") + " or later"
    rows = "".join(
        f"| `{path}` | {f'`{default}`' if default else ''} | {text} |\n".replace("  ", " ")
        for path, default, text in values()
    )
    return HEAD.format(**about) + rows


def values() -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of every value, and of every group of values that has a comment."""
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _of_mapping(root, "", text.splitlines())


def _of_mapping(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path, comment = f"{prefix}{key.value}", _comment(lines, key.start_mark.line).replace("|", "\\|")
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if comment:
                yield path, "", comment
            yield from _of_mapping(value, f"{path}.", lines)
        else:
            start, end = value.start_mark, value.end_mark
            yield path, lines[start.line][start.column : end.column].replace("|", "\\|"), comment


def _comment(lines: list[str], number: int) -> str:
    """What stands above a line, or behind what it says."""
    above = []
    while number and lines[number - 1].lstrip().startswith("#"):
        number -= 1
        above.insert(0, lines[number].strip().lstrip("# "))
    if above:
        return " ".join(above)
    return lines[number].partition(" # ")[2]


if __name__ == "__main__":
    README.write_text(render())
