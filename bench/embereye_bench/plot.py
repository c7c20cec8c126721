"""Draw a plot in text with two logarithmic axes, for a terminal or documentation."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 64, 16  # characters
MARKS = "·ox#+*"


def plot(places: Sequence[float], lines: Mapping[str, Sequence[float]], across: str, up: str) -> str:
    """Plot `lines` by name, with a value for each of `places`; `across` and `up` name the axes.

    Values of 0 and below have no place on a logarithmic axis and are left out.
    """
    values = [value for line in lines.values() for value in line if value > 0]
    if not values:
        return f"{up:>8}   no value above 0"
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    if low == high:
        high *= 10
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    columns = [_place(place, min(places), max(places), WIDTH) for place in places]
    for mark, line in zip(MARKS, lines.values(), strict=False):
        for column, value in zip(columns, line, strict=True):
            if value > 0:
                cells[HEIGHT - 1 - _place(value, low, high, HEIGHT)][column] = mark
    legend = "  ".join(f"{mark} {name}" for mark, name in zip(MARKS, lines, strict=False))
    rows = [f"{up:>8}   {legend}"]
    decades = {HEIGHT - 1 - _place(10.0**power, low, high, HEIGHT): 10.0**power for power in _powers(low, high)}
    for number, row in enumerate(cells):
        label = f"{decades[number]:,g}" if number in decades else ""
        rows.append(f"{label:>8} {'┤' if label else '│'} {''.join(row)}".rstrip())
    rows.append(f"{'':>8} └{'─' * (WIDTH + 1)}")
    axis = [" "] * (WIDTH + 8)
    end = 0
    for column, place in sorted(zip(columns, places, strict=True)):
        label = f"{place:,g}"
        if column >= end:
            axis[column : column + len(label)] = label
            end = column + len(label) + 1
    rows.append(f"{'':>11}{''.join(axis).rstrip()}  {across}")
    return "\n".join(rows)


def _place(value: float, low: float, high: float, size: int) -> int:
    if high <= low:
        return 0
    return round(math.log(value / low) / math.log(high / low) * (size - 1))


def _powers(low: float, high: float) -> range:
    return range(round(math.log10(low)), round(math.log10(high)) + 1)
