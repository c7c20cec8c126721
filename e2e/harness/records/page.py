"""A run as one self-contained page: its steps, its numbers and its timeline."""

from html import escape
from pathlib import Path

from harness.records.diary import Diary, stamp

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em; color: #1c1c1e }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; color: #666 }
tr.bad td { color: #a30000 } tr.good td { color: #0a6b23 } tr.step td { border-top: 1px solid #bbb; font-weight: 600 }
pre { background: #f4f4f2; padding: 1em; overflow-x: auto } .source { white-space: nowrap; color: #555 }
label { margin-right: 1em } ol li { margin: .1em 0 } .sum { font-size: 1.2em; font-weight: 600 }
"""
SCRIPT = """
for (const box of document.querySelectorAll('input[data-source]'))
  box.addEventListener('change', () => {
    for (const row of document.querySelectorAll('tr[data-source="' + box.dataset.source + '"]'))
      row.hidden = !box.checked;
  });
"""


def write_page(diary: Diary) -> Path:
    """Write index.html into the run's folder and return its path."""
    failed = [step for step in diary.steps if step.error]
    title = f"End-to-end run of {stamp(diary.started_ns)}: {'FAILED' if failed else 'passed'}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        *(f"<p class=sum>{escape(step.title)}</p><pre>{escape(step.error)}</pre>" for step in failed),
        "<h2>Steps</h2>",
        _steps(diary),
        "<h2>Numbers</h2>",
        _numbers(diary),
        "<h2>Files</h2>",
        _files(diary.folder),
        "<h2>What happened</h2>",
        _timeline(diary),
        f"<script>{SCRIPT}</script></html>",
    ]
    page = diary.folder / "index.html"
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return page


def _steps(diary: Diary) -> str:
    rows = [
        f"<tr class={'bad' if step.error else 'good'}>"
        f"<td class=n>+{(step.started_ns - diary.started_ns) / 1e9:.1f} s</td>"
        f"<td class=n>{step.seconds:.1f} s</td><td>{escape(step.title)}</td>"
        f"<td>{escape('; '.join(step.remarks))}</td></tr>"
        for step in diary.steps
    ]
    return f"<table><tr><th>start<th>duration<th>step<th></tr>{''.join(rows)}</table>"


def _numbers(diary: Diary) -> str:
    rows = [
        f"<tr class={'' if number.within else 'bad'}><td>{escape(number.name)}</td><td class=n>{number.text()}</td>"
        f"<td class=n>{'' if number.limit is None else f'≤ {number.limit:g}'}</td></tr>"
        for number in diary.numbers
    ]
    return f"<table><tr><th>number<th>measured<th>allowed</tr>{''.join(rows)}</table>"


def _files(folder: Path) -> str:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    items = [f'<li><a href="{escape(name)}">{escape(name)}</a></li>' for name in names if name != "index.html"]
    return f"<ul>{''.join(items)}</ul>"


def _timeline(diary: Diary) -> str:
    entries = sorted(diary.entries, key=lambda entry: entry.time_ns)
    sources = sorted({entry.source for entry in entries})
    boxes = "".join(
        f'<label><input type=checkbox checked data-source="{escape(name)}"> {escape(name)}</label>' for name in sources
    )
    rows = []
    for entry in entries:
        kind = f"{entry.level} {'step' if entry.source == 'step' else ''}".strip()
        rows.append(
            f'<tr class="{kind}" data-source="{escape(entry.source)}">'
            f'<td class=n title="{stamp(entry.time_ns)}">{(entry.time_ns - diary.started_ns) / 1e9:+.3f}</td>'
            f"<td class=source>{escape(entry.source)}</td><td>{escape(entry.text)}</td></tr>"
        )
    return f"<p>{boxes}</p><table>{''.join(rows)}</table>"
