#!/usr/bin/env python3
"""Perplexity against bits a weight: measures, and draws the table and plot of docs/quality.md.

Usage: scripts/quality.py [--measure CELLM ZOO [MODEL...]]

--measure converts each model of ZOO (the folder with nano, qwen3, gemma3 and heldout.txt) by every
recipe below, calibrated on testdata/calibration/prose.txt, measures the files' perplexity on
heldout.txt in float arithmetic with CELLM (the binary), and replaces the rows in
docs/quality.json. Without it the table and docs/quality.svg are made from that file alone.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "docs", "quality.json")
PAGE = os.path.join(ROOT, "docs", "quality.md")
PLOT = os.path.join(ROOT, "docs", "quality.svg")
TEXT = os.path.join(ROOT, "testdata", "calibration", "prose.txt")
MODELS = ["nano", "qwen3", "gemma3"]
# Recipe lines, separated by ';'. Those of --mixed 6 to 2 are among them.
RECIPES = [
    "* i8",
    "* i6:64",
    "@embedding i8; @head i8; * i6:64",
    "@embedding i6:32; @head i6:32; * i5:32",
    "@embedding i6:32; @head i6:32; * i5:64",
    "@embedding i8; @head i8; * i4:32",
    "@embedding i6:32; @head i6:32; * i4:32",
    "@embedding i6:32; @head i6:32; * i4:64",
    "* i4:32",
    "* i4:64",
    "@embedding i4:32; @head i4:32; * i3:32",
    "@embedding i4:32; @head i4:32; * i3:64",
    "@embedding i4:64; @head i4:64; *down_proj* i3:64; *.w2.* i3:64; * i2:64",
    "@embedding i3:64; @head i3:64; *down_proj* i2:32; *.w2.* i2:32; * i2:64",
    "@embedding i3:64; @head i3:64; * i2:64",
]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def perplexity(cellm, model, zoo):
    out = run(cellm, "perplexity", "--model", model, "--text", os.path.join(zoo, "heldout.txt"),
              "--activations", "f32", "--kv", "f32", "--json")
    return json.loads(out)["perplexity"]


def bits(cellm, model):
    """Bytes of all tensors over parameters."""
    report = json.loads(run(cellm, "inspect", "--json", model))
    return 8 * report["tensor_bytes"] / report["parameters"]


def measure_row(cellm, zoo, name, recipe):
    with tempfile.TemporaryDirectory() as folder:
        recipe_file = os.path.join(folder, "recipe.txt")
        with open(recipe_file, "w", encoding="utf-8") as file:
            file.write(recipe.replace("; ", "\n") + "\n")
        out = os.path.join(folder, "out.cellm")
        run(cellm, "convert", "-i", os.path.join(zoo, name), "-o", out, "--recipe", recipe_file,
            "--calibrate", TEXT, "--calibrate-tokens", "35840", "-q")
        row = {"recipe": recipe, "bits": round(bits(cellm, out), 3),
               "perplexity": round(perplexity(cellm, out, zoo), 4)}
    print(name, row, flush=True)
    return row


def measure(cellm, zoo, models, data):
    """Some rows at a time where there are cores for it: a row keeps about four busy."""
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        for name in models:
            rows = list(pool.map(lambda recipe: measure_row(cellm, zoo, name, recipe), RECIPES))
            data["models"][name]["float"] = round(perplexity(cellm, os.path.join(zoo, name), zoo), 4)
            data["models"][name]["rows"] = rows


def front(points):
    """The points that no other beats in both bits and perplexity, by rising bits."""
    best = []
    for point in sorted(points, key=lambda p: (p[0], p[1])):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def interpolate(points, at):
    """The peer's perplexity at `at` bits; None outside of its curve."""
    points = front(points)
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    if points and at > points[-1][0]:
        return points[-1][1]
    return None


def peer_points(model):
    return [(p["bits"], p["perplexity"]) for p in model.get("peer", [])]


def table(data):
    lines = []
    for name, model in data["models"].items():
        lines += [f"### {name}: {model['float']:.4f} in float", "",
                  "| recipe | bits | perplexity | over float | llama.cpp at these bits |",
                  "|---|---|---|---|---|"]
        for row in sorted(model["rows"], key=lambda r: -r["bits"]):
            peer = interpolate(peer_points(model), row["bits"])
            over = 100 * (row["perplexity"] / model["float"] - 1)
            lines.append(f"| `{row['recipe']}` | {row['bits']:.3f} | {row['perplexity']:.4f} | "
                         f"{over:+.2f} % | {'' if peer is None else f'{peer:.4f}'} |")
        lines.append("")
    return "\n".join(lines)


class Panel:
    """One model's axes: bits from 2 to 9, perplexity over float from 0.99 to 1.6."""
    WIDTH, HEIGHT, LEFT, TOP = 300, 260, 50, 40
    LOW, HIGH, MOST = 2.0, 9.0, 60.0

    def __init__(self, index):
        self.x0 = self.LEFT + index * (self.WIDTH + 60)

    def x(self, value):
        return self.x0 + self.WIDTH * (value - self.LOW) / (self.HIGH - self.LOW)

    def y(self, over):
        # Square root: small losses are what matters.
        part = (max(over, 0.0) / self.MOST) ** 0.5
        return self.TOP + self.HEIGHT * (1 - min(part, 1.0))

    def frame(self, title):
        bottom = self.TOP + self.HEIGHT
        out = [f'<rect x="{self.x0}" y="{self.TOP}" width="{self.WIDTH}" height="{self.HEIGHT}" '
               'fill="none" stroke="#888"/>',
               f'<text x="{self.x0}" y="{self.TOP - 12}" font-weight="bold">{title}</text>']
        for over in (0, 1, 5, 10, 20, 40, 60):
            y = self.y(over)
            out.append(f'<line x1="{self.x0}" y1="{y:.1f}" x2="{self.x0 + self.WIDTH}" '
                       f'y2="{y:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{self.x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{over}%</text>')
        for value in range(2, 10):
            out.append(f'<text x="{self.x(value):.1f}" y="{bottom + 16}" '
                       f'text-anchor="middle">{value}</text>')
        return out

    def series(self, points, color, dash):
        inside = [(self.x(b), self.y(o)) for b, o in points if b <= self.HIGH and o <= self.MOST]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
        out = [f'<polyline points="{path}" fill="none" stroke="{color}" {dash}/>']
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in inside]
        return out


def plot(data):
    count = len(data["models"])
    width = Panel.LEFT + count * (Panel.WIDTH + 60)
    height = Panel.TOP + Panel.HEIGHT + 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for index, (name, model) in enumerate(data["models"].items()):
        panel = Panel(index)
        out += panel.frame(f"{name}: perplexity over float, by bits a weight")

        def over(points):
            return [(b, 100 * (p / model["float"] - 1)) for b, p in sorted(points)]

        out += panel.series(over(front(peer_points(model))), "#c60", 'stroke-dasharray="4 3"')
        out += panel.series(over(front([(r["bits"], r["perplexity"]) for r in model["rows"]])),
                            "#06c", "")
    y = height - 12
    out.append(f'<text x="{Panel.LEFT}" y="{y}"><tspan fill="#06c">cellm</tspan>, '
               '<tspan fill="#c60">llama.cpp (dashed)</tspan>: the best of each</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="+", metavar="ARG")
    arguments = parser.parse_args()
    with open(DATA, encoding="utf-8") as file:
        data = json.load(file)
    if arguments.measure:
        cellm, zoo, *models = arguments.measure
        measure(cellm, zoo, models or MODELS, data)
        with open(DATA, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    page = re.sub(r"(<!-- table -->\n).*(<!-- end of table -->)",
                  lambda m: m.group(1) + table(data) + m.group(2), page, flags=re.S)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page)
    with open(PLOT, "w", encoding="utf-8") as file:
        file.write(plot(data))


if __name__ == "__main__":
    main()
