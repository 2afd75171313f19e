#!/usr/bin/env python3
"""Draws deploy/monitoring/dashboard.json as an SVG from what a Prometheus has recorded, without a Grafana.

    python3 bench/dashboard.py --prometheus http://127.0.0.1:9090 --start 1700000000 --end 1700000600 > dashboard.svg

Stat panels show the value at the end, all others their series as lines. bench/README.md says how to record a run.
"""

import argparse
import html
import json
import math
import pathlib
import urllib.parse
import urllib.request

CELL, HEIGHT, GAP, MOST = 50, 30, 8, 12
COLOURS = ["#2f6fb0", "#d9822b", "#3d9150", "#c23b3b", "#7b57a8", "#7a5c3e", "#c464a8", "#6b6b6b", "#a3a52b", "#2ba3b4"]
DASHBOARD = pathlib.Path(__file__).parent.parent / "deploy/monitoring/dashboard.json"


def ask(base, path, **parameters):
    """The result of a query."""
    url = f"{base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def filled(expression, window):
    """The query with values for what Grafana puts in."""
    expression = expression.replace("$__rate_interval", window)
    for variable in ("cluster", "namespace", "ring"):
        expression = expression.replace(f"${variable}", ".*")
    return expression


def legend(form, labels):
    """The name of a series."""
    for key, value in labels.items():
        form = form.replace("{{%s}}" % key, value)
    return form


def shown(value, unit):
    """A number as a person reads it."""
    if unit == "s":
        for limit, factor, suffix in ((1, 1000, " ms"), (120, 1, " s"), (7200, 1 / 60, " min"), (172800, 1 / 3600, " h")):
            if abs(value) < limit:
                return f"{value * factor:.3g}{suffix}"
        return f"{value / 86400:.0f} d"
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


def text(x, y, words, size=11, colour="#333", anchor="start", weight="normal"):
    """A line of text."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def stat(panel, box, series, end, step):
    """Values as they are at the end."""
    x, y, width, height = box
    unit = panel["fieldConfig"]["defaults"]["unit"]
    red = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"] if step["color"] == "red"]
    last = [points[-1][1] for _, points in series if points[-1][0] > end - 2 * step]
    words = ", ".join(shown(value, unit) for value in last[:3]) or "none"
    bad = bool(red) and any(value >= red[0] for value in last)
    return [text(x + width / 2, y + height / 2 + 18, words, 24, "#c23b3b" if bad else "#3d9150", "middle", "bold")]


def graph(panel, box, series, start, end, step):
    """Series as lines over time, with the greatest value and the names below."""
    x, y, width, height = box
    left, right, top, bottom = x + 42, x + width - 8, y + 26, y + height - 34
    unit = panel["fieldConfig"]["defaults"]["unit"]
    most = max((value for _, points in series for _, value in points), default=0) or 1
    parts = []
    for share in (0, 0.5, 1):
        level = bottom - share * (bottom - top)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}" stroke="#e3e3e3"/>')
        parts.append(text(left - 4, level + 4, shown(most * share, unit), 9, "#777", "end"))
    for number, (_, points) in enumerate(series[:MOST]):
        stroke = COLOURS[number % len(COLOURS)]
        line, before = [], None
        for at, value in points:
            pen = "M" if before is None or at - before > 2.5 * step else "L"
            line.append(f"{pen}{left + (at - start) / (end - start) * (right - left):.1f} {bottom - value / most * (bottom - top):.1f}")
            before = at
        parts.append(f'<path d="{"".join(line)}" fill="none" stroke="{stroke}" stroke-width="1.4"/>')
    across, down = left - 30, bottom + 14
    for number, (name, _) in enumerate(series[:MOST]):
        if across + 6 * len(name) + 16 > right:
            across, down = left - 30, down + 11
        if down > y + height - 2:
            break
        parts.append(f'<rect x="{across}" y="{down - 7}" width="8" height="8" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(text(across + 11, down, name, 9, "#555"))
        across += 6 * len(name) + 22
    if not series:
        parts.append(text(x + width / 2, y + height / 2, "no data in this run", 11, "#999", "middle"))
    return parts


def main():
    """Asks for each panel and draws it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--window", default="15s", help="what $__rate_interval is; four scrapes")
    run = parser.parse_args()
    dashboard = json.loads(DASHBOARD.read_text())
    step = max((run.end - run.start) / 240, 1)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    parts = []
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y = grid["x"] * CELL + GAP / 2, grid["y"] * HEIGHT + GAP / 2
        width, height = grid["w"] * CELL - GAP, grid["h"] * HEIGHT - GAP
        if panel["type"] == "row":
            parts.append(text(x + 4, y + 18, panel["title"], 15, "#222", weight="bold"))
            continue
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="#fff" stroke="#d5d5d5"/>')
        parts.append(text(x + 8, y + 16, panel["title"], 12, weight="bold"))
        series = []
        for target in panel["targets"]:
            asked = {"query": filled(target["expr"], run.window), "start": run.start, "end": run.end, "step": step}
            for found in ask(run.prometheus, "query_range", **asked):
                points = [(float(at), float(value)) for at, value in found["values"]]
                points = [point for point in points if math.isfinite(point[1])]
                if points:
                    series.append((legend(target["legendFormat"], found["metric"]), points))
        box = (x, y, width, height)
        if panel["type"] == "stat":
            parts += stat(panel, box, series, run.end, step)
        else:
            parts += graph(panel, box, series, run.start, run.end, step)
    width, height = 24 * CELL, rows * HEIGHT
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">')
    print(f'<rect width="{width}" height="{height}" fill="#f4f5f7"/>')
    print("\n".join(parts))
    print("</svg>")


main()
