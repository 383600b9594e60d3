"""Bar charts of the peers as SVG, readable on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bench.peers.report import disturbed, ms, total_cpu

WIDTH, ROW, TOP, LEFT, RIGHT = 760, 26, 58, 250, 180
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .card { fill: #ffffff }
  .title { font-weight: 600; font-size: 15px }
  .note, .tick { fill: #59636e; font-size: 12px }
  .bar { fill: #8c959f } .ours { fill: #1a7f64 } .bad { fill: #bc4c00 }
  .line { stroke: #8c959f; stroke-opacity: .35 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117 } text { fill: #e6edf3 } .note, .tick { fill: #9198a1 }
    .bar { fill: #6e7681 } .ours { fill: #3fb68b } .bad { fill: #db6d28 }
  }
"""
Result = Mapping[str, Any]
Bar = tuple[str, float, str, str]
"""Label, value, what is written beside it, class."""


def draw(results: Result, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    peers = [peer for peer in results["peers"] if not peer["only_rates"]]
    when = f"{results['date']}{', beside other work' if disturbed(results) else ''}"
    pictures = {
        "peers-lateness.svg": (
            "How late fires start: p99 at 100 fires a second",
            f"{when}; milliseconds, logarithmic; smaller is better.",
            bars(peers, lambda peer: (peer["at_100"] or {}).get("p99_ms"), with_missing(ms)),
        ),
        "peers-cpu.svg": (
            "CPU per fire at 100 fires a second, replicas and server",
            f"{when}; milliseconds, logarithmic; smaller is better.",
            bars(peers, cpu, with_missing(lambda value: f"{value:.2f} ms")),
        ),
        "peers-rate.svg": (
            "Highest rate that held",
            f"{when}; logarithmic; larger is better.",
            bars(peers, lambda peer: peer["highest"], lambda value, _: f"{value:,.0f}/s"),
        ),
    }
    written = []
    for name, (title, note, drawn) in pictures.items():
        if drawn:
            (folder / name).write_text(chart(title, note, drawn))
            written.append(folder / name)
    return written


def cpu(peer: Result) -> float | None:
    found = peer["at_100"]
    return total_cpu(found) if found and found["p99_ms"] is not None else None


def bars(
    peers: Sequence[Result], value: Callable[[Result], float | None], shown: Callable[[float, Result], str]
) -> list[Bar]:
    """In the order of the table. One that could not do it has no bar."""
    found = []
    for peer in peers:
        number = value(peer)
        if not number:
            continue
        kind = "ours" if peer["ours"] else "bar" if peer["coordinated"] else "bad"
        found.append((f"{peer['label']} {peer['version']}", number, shown(number, peer), kind))
    return found


def with_missing(shown: Callable[[float], str]) -> Callable[[float, Result], str]:
    """Lateness and cost are of the fires that started: where others did not, the picture says so."""

    def text(value: float, peer: Result) -> str:
        found = peer["at_100"]
        missing = f", {found['lost'] / found['due']:.0%} not started" if found["lost"] else ""
        return shown(value) + missing

    return text


def chart(title: str, note: str, drawn: Sequence[Bar]) -> str:
    low = 10 ** math.floor(math.log10(min(value for _, value, _, _ in drawn)) - 0.2)
    high = max(value for _, value, _, _ in drawn)
    span = WIDTH - LEFT - RIGHT
    height = TOP + ROW * len(drawn) + 34

    def x(value: float) -> float:
        return LEFT + span * math.log(value / low) / math.log(high / low)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="card" width="{WIDTH}" height="{height}" rx="6"/>',  # the page's colours may be others than ours
        f'<text class="title" x="8" y="22">{escape(title)}</text>',
        f'<text class="note" x="8" y="42">{escape(note)} Orange: replicas do not share the work.</text>',
    ]
    power = math.ceil(math.log10(low))
    while 10**power <= high:
        at = x(10**power)
        lines.append(f'<line class="line" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{height - 26}"/>')
        lines.append(
            f'<text class="tick" x="{at:.1f}" y="{height - 10}" text-anchor="middle">{10**power:g}</text>'
        )
        power += 1
    for number, (label, value, shown, kind) in enumerate(drawn):
        y = TOP + ROW * number
        end = max(x(value), LEFT + 2)
        lines.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(label)}</text>')
        lines.append(
            f'<rect class="{kind}" x="{LEFT}" y="{y + 3}" width="{end - LEFT:.1f}" height="{ROW - 8}" rx="2"/>'
        )
        lines.append(f'<text x="{end + 6:.1f}" y="{y + 16}">{escape(shown)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
