"""Draws the dashboards as SVG from a real Prometheus' answers to every panel: python -m tests.monitoring.draw DIR.

They show Grafana's input: titles, places, units and values, not its way of drawing. They illustrate
docs/how-to/grafana.md; check them after a change of a dashboard. `make pictures` draws those of the docs.
"""

import argparse
import json
import math
import re
import tempfile
import time
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from embereye_operator.api.files import ROOT

from .site import FLEETS, Prometheus, running_prometheus, running_site, until
from .test_live import asked

FOLDER = ROOT / "charts/embereye/files/dashboards"
# A site with a fire for a while, so that there is something to see.
BURNING = FLEETS.replace('simulate: "true"', 'simulate: "true", embereye.dev/simulate-fire: "at=30,for=25,zone=hall"')
WIDTH, ROW = 1200, 30  # pixels; width of a picture, and height of a row in the dashboards' grid
COLUMN = WIDTH / 24
COLOURS = ("#56a64b", "#3274d9", "#e0b400", "#e02f44", "#8f3bb8", "#ff780a", "#37872d", "#1f60c4")
ENTRIES = 6  # of a legend, and rows in a table
POINTS = 60  # in a line
UNITS = {
    "percentunit": ("%", 100.0), "percent": ("%", 1.0), "cps": ("/s", 1.0), "cpm": ("/min", 1.0), "reqps": ("/s", 1.0),
    "ops": ("/s", 1.0), "dtdurations": (" s", 1.0), "s": (" s", 1.0), "ms": (" ms", 1.0), "Bps": (" B/s", 1.0),
    "celsius": (" °C", 1.0), "d": (" d", 1.0),
}  # fmt: skip


def shown(value: float, unit: str | None) -> str:
    """Format a value for people."""
    if math.isnan(value):
        return "no value"
    if unit in {"bytes", "decbytes"}:
        return f"{value / 1e6:,.3g} MB"
    if unit == "s" and value and abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    suffix, factor = UNITS.get(unit or "", ("", 1.0))
    return f"{value * factor:,.4g}{suffix}"


def named(series: dict[str, Any], legend: str | None) -> str:
    """Return a series' name from its legend, or from its labels."""
    labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
    if not legend or legend == "__auto":
        return ", ".join(labels.values())
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return re.sub(r"{{\w+}}", "", legend).strip()


def text(x: float, y: float, words: str, size: int = 11, colour: str = "#24292e", *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{anchor}>{escape(words)}</text>'


class Picture:
    """A dashboard drawn from `prometheus` for the seconds from `start` to `end`."""

    def __init__(self, prometheus: Prometheus, start: float, end: float) -> None:
        self._prometheus = prometheus
        self._start, self._end = start, end

    def draw(self, dashboard: dict[str, Any]) -> str:
        panels = [panel for outer in dashboard["panels"] for panel in (outer, *outer.get("panels", ()))]
        height = ROW * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f"<title>{escape(dashboard['title'])}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#f4f5f5"/>',
        ]
        for panel in panels:
            parts += self._panel(panel)
        return "\n".join([*parts, "</svg>", ""])

    def _panel(self, panel: dict[str, Any]) -> Iterator[str]:
        place = panel["gridPos"]
        left, top = place["x"] * COLUMN, place["y"] * ROW
        width, height = place["w"] * COLUMN - 6, place["h"] * ROW - 6
        if panel["type"] == "row":
            yield text(left + 4, top + 20, panel["title"], 14)
            return
        yield (
            f'<rect x="{left + 3:.0f}" y="{top + 3:.0f}" width="{width:.0f}" height="{height:.0f}" rx="3" fill="#fff" '
            'stroke="#d8d9da"/>'
        )
        yield text(left + 11, top + 20, panel.get("title", ""), 12)
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        results = [
            (named(series, target.get("legendFormat")), [(float(at), float(value)) for at, value in series["values"]])
            for target in panel.get("targets", ())
            for series in self._ask(target["expr"])
        ]
        if not results:
            yield text(left + 3 + width / 2, top + height / 2, "nothing to show", colour="#8e8e8e", middle=True)
        elif panel["type"] in {"stat", "gauge"}:
            words = shown(results[0][1][-1][1], unit)
            yield text(left + 3 + width / 2, top + 20 + height / 2, words, 28, middle=True)
        elif panel["type"] in {"timeseries", "state-timeline", "heatmap"}:
            yield from self._lines(results, unit, (left + 3, top + 3, width, height))
        else:
            for number, (name, points) in enumerate(results[:ENTRIES]):
                yield text(left + 11, top + 44 + 18 * number, f"{name}: {shown(points[-1][1], unit)}")
            if len(results) > ENTRIES:
                yield text(left + 11, top + 44 + 18 * ENTRIES, f"and {len(results) - ENTRIES} more", colour="#8e8e8e")

    def _ask(self, expression: str) -> list[dict[str, Any]]:
        step = f"{(self._end - self._start) / POINTS:.3f}"
        answer = self._prometheus.get(
            "query_range", query=asked(expression), start=str(self._start), end=str(self._end), step=step
        )
        return list(answer["result"])

    def _lines(
        self, lines: list[tuple[str, list[tuple[float, float]]]], unit: str | None, place: tuple[float, ...]
    ) -> Iterator[str]:
        left, top, width, height = place
        values = [value for _, points in lines for _, value in points if math.isfinite(value)]
        low, high = min([0.0, *values]), max([0.0, *values])
        high += (high == low) * 1.0
        entries = min(len(lines), ENTRIES)
        x0, x1, y0, y1 = left + 62, left + width - 10, top + 30, top + height - 10 - 14 * ((entries + 1) // 2)
        for share in (0.0, 0.5, 1.0):
            y = y1 - share * (y1 - y0)
            yield f'<line x1="{x0:.0f}" x2="{x1:.0f}" y1="{y:.0f}" y2="{y:.0f}" stroke="#e7e7e7"/>'
            yield text(left + 6, y + 4, shown(low + share * (high - low), unit), 10, "#6e7074")
        for number, (name, points) in enumerate(lines):
            colour = COLOURS[number % len(COLOURS)]
            xy = [
                (
                    x0 + (at - self._start) / (self._end - self._start) * (x1 - x0),
                    y1 - (value - low) / (high - low) * (y1 - y0),
                )
                for at, value in points
                if math.isfinite(value)
            ]
            # A point between two of the same value adds nothing.
            simplified = xy[:1] + [b for (a, b), (_, c) in zip(pairwise(xy), pairwise(xy[1:]), strict=False)
                             if not a[1] == b[1] == c[1]] + xy[-1:]  # fmt: skip
            line = " ".join(f"{x:.0f},{y:.1f}" for x, y in simplified)
            yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            if number < ENTRIES:
                x, y = left + 12 + (number % 2) * width / 2, y1 + 18 + 14 * (number // 2)
                yield f'<rect x="{x:.0f}" y="{y - 7:.0f}" width="10" height="3" fill="{colour}"/>'
                more = f" and {len(lines) - ENTRIES} more" if number == ENTRIES - 1 and len(lines) > ENTRIES else ""
                yield text(x + 15, y, f"{name[:60]}{more}", 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder that NAME.svg is written to")
    parser.add_argument("--only", action="append", metavar="NAME", help="draw this dashboard alone; may be given again")
    parser.add_argument("--seconds", type=float, default=75.0, help="that are shown (default: 75)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rules = ROOT / "charts/embereye/files/rules/prometheus.yaml"
        with running_site(folder, BURNING) as site, running_prometheus(
            folder, site.data / "prometheus-targets.json", rules
        ) as prometheus:  # fmt: skip
            until(lambda: len(prometheus.query("up == 1")) == 4)
            time.sleep(arguments.seconds)
            end = time.time()
            picture = Picture(prometheus, end - arguments.seconds, end)
            for path in sorted(FOLDER.glob("*.json")):
                if not arguments.only or path.stem in arguments.only:
                    drawn = picture.draw(json.loads(path.read_text()))
                    (arguments.folder / f"{path.stem}.svg").write_text(drawn)
                    print(f"{path.stem}.svg: {len(drawn) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
