"""The report of a soak: plots of every process's usage, delays, slopes with intervals, faults.

The page is built from a finished `Soaked`, in memory or read from its folder. Plots are SVG in the page, drawn here, so
it is one file that needs no network.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from harness.machine.soak import MEASURES, Soaked
from harness.records.page import STYLE

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 220, 60, 24
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")


def write_soak_page(path: Path, result: Soaked) -> None:
    """Write the report as one self-contained page."""
    hours = result.plan.seconds / 3600
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Soak</title><style>{STYLE}</style>",
        f"<h1>Soak</h1><p class=sum>{escape(result.summary())}</p>",
        f"<p>Again: <code>make {result.target} HOURS={hours:g} ARGS='--seed {result.plan.seed}'</code></p>",
    ]
    for measure, unit in MEASURES.items():
        parts += [
            f"<h2>{escape(measure.removesuffix('_mb'))}, {unit}</h2>",
            usage(result, measure),
            _slopes(result, measure),
        ]
    parts += [
        "<h2>From a fire's first line to its alarm, ms</h2>",
        _latency(result),
        "<h2>Faults</h2>",
        _faults(result),
    ]
    path.write_text("\n".join(parts) + "</html>\n")


def usage(result: Soaked, measure: str) -> str:
    """Plot a measure of every process."""
    column = 1 + list(MEASURES).index(measure)
    roles = sorted({role for role, _ in result.samples.rows})
    lines = []
    for (role, _), rows in result.samples.rows.items():
        points = [(row[0], float(row[column])) for row in rows]
        lines.append((role, COLOURS[roles.index(role) % len(COLOURS)], points))
    return plot(lines, dots=False)


def _latency(result: Soaked) -> str:
    return plot([("fires", COLOURS[0], [(at, delay * 1e3) for at, delay in result.fires])], dots=True)


def plot(lines: Sequence[tuple[str, str, Sequence[tuple[float, float]]]], *, dots: bool) -> str:
    """Draw series of (seconds, value) by name and colour as an SVG whose axes start at 0."""
    points = [point for _, _, series in lines for point in series]
    if not points:
        return "<p>no measurements</p>"
    last, most = max(x for x, _ in points) or 1.0, max(y for _, y in points) * 1.05 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT) * x / last, (HEIGHT - BOTTOM) * (1 - y / most)

    marks, minutes = list[str](), last / 60
    for _, colour, series in lines:
        if dots:
            marks += [_dot(*place(x, y), colour) for x, y in series]
        else:
            path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in series)
            marks.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
    axes = [
        _text(0, (HEIGHT - BOTTOM) * (1 - share) + 10, f"{most * share:.4g}") for share in (0.0, 0.5, 0.95)
    ] + [
        _text(LEFT + (WIDTH - LEFT - 40) * share, HEIGHT - 4, f"{minutes * share:.0f} min") for share in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    names = sorted({name: colour for name, colour, _ in lines}.items())
    key = [_text(LEFT + 110 * number, HEIGHT + 14, f"■ {name}", colour) for number, (name, colour) in enumerate(names)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 20}" width="{WIDTH}" '
        f'font-family="sans-serif">{"".join([*axes, *marks, *key])}</svg>'
    )


def _text(x: float, y: float, text: str, colour: str = "#444") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11" fill="{colour}">{escape(text)}</text>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'


def _slopes(result: Soaked, measure: str) -> str:
    rows = "".join(
        f"<tr class={'bad' if growth.is_growth else ''}><td>{escape(role)}<td class=n>{growth.value:+.3f}"
        f"<td class=n>{growth.low:+.3f} to {growth.high:+.3f}<td class=n>{growth.samples}</tr>"
        for role, growth in result.samples.slopes()[measure].items()
    )
    return f"<table><tr><th>process<th>slope an hour<th>interval (95 % for all)<th>samples</tr>{rows}</table>"


def _faults(result: Soaked) -> str:
    rows = "".join(
        f"<tr class={'' if outcome.ok else 'bad'}>"
        f"<td>{escape(' and '.join(outcome.faults))}<td>{escape(outcome.text())}"
        f"<td>{escape(outcome.problem)}</tr>"
        for outcome in result.outcomes
    )
    return f"<table>{rows}</table>"
