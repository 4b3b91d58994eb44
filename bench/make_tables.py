#!/usr/bin/env python3
"""Turns what bench/run_tables.sh measured into docs/benchmarks.md's tables and plots.

    bench/make_tables.py FOLDER [--docs docs]

Prints the tables as Markdown and writes docs/benchmarks-decode.svg and docs/benchmarks-depth.svg.
A part that was not measured is left out.
"""
import argparse
import glob
import json
import os

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
COLOURS = {"f16": "#7f7f7f", "i8": "#1f77b4", "i4": "#d62728", "i4:64/i4:64": "#ff7f0e",
           "i2": "#2ca02c"}


def load(folder, names):
    runs = []
    for name in names:
        path = os.path.join(folder, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                runs += json.load(file)["runs"]
    return runs


def row_of(run, test, **where):
    for row in run["results"]:
        if row["test"] == test and all(row[key] == value for key, value in where.items()):
            return row
    return None


def shown(row):
    if row is None:
        return "–"
    value = f"{row['median']:.1f}" if row["median"] < 100 else f"{row['median']:.0f}"
    return value + (f" ({100 * row['share']:.0f} %)" if "share" in row else "")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows]) + "\n"


def speed_table(runs):
    rows = []
    for run in runs:
        one = row_of(run, "batch", sequences=1)
        eight = row_of(run, "batch", sequences=8)
        gain = f"{eight['median'] / one['median']:.1f}" if one and eight else "–"
        rows.append([run["model"], run["format"], str(run["threads"]), run["weights"],
                     f"{run['weight_bytes'] / 1e6:.0f}", shown(row_of(run, "prefill")),
                     shown(row_of(run, "decode", depth=0)),
                     "–" if eight is None else f"{eight['median']:.0f}", gain])
    return table(["model", "weights", "threads", "held", "MB", "prefill 512, tokens/s (of peak)",
                  "decode, tokens/s (of read)", "8 sequences", "times one"], rows)


def long_table(runs):
    rows = []
    for run in runs:
        for row in run["results"]:
            if row["test"] in ("decode", "long-decode"):
                rows.append([run["model"], run["format"], str(run["threads"]), "decode",
                             str(row["depth"]), shown(row)])
            elif row["test"] in ("prefill", "long-prefill", "long-prefill-tail"):
                rows.append([run["model"], run["format"], str(run["threads"]),
                             f"prefill of {row['tokens']}", str(row["depth"]), shown(row)])
    return table(["model", "weights", "threads", "what", "at depth", "tokens/s"], rows)


def peer_table(folder):
    path = os.path.join(folder, "peer.json")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    return table(["model", "threads", "what", "cellm", "llama.cpp mapped", "llama.cpp read",
                  "times the faster", "of the ceiling"],
                 [[r["model"], str(r["threads"]), f"{r['test']}, {r['unit']}", f"{r['cellm']:.4g}",
                   f"{r['peer_mapped']:.4g}", f"{r['peer_loaded']:.4g}", f"{r['ratio']:.2f}",
                   "–" if r["share"] is None else f"{100 * r['share']:.0f} %"] for r in rows])


class Plot:
    """A frame with axes from 0 and marks in data coordinates."""
    width, height, left, bottom, top = 640, 360, 60, 50, 40

    def __init__(self, title, x_title, y_title, x_most, y_most):
        self.x_most, self.y_most = x_most, y_most
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                    f'height="{self.height}" font-family="sans-serif" font-size="12">',
                    f'<rect width="{self.width}" height="{self.height}" fill="white"/>']
        self.text(self.width / 2, 20, title, "middle", 14)
        self.text(self.width / 2, self.height - 8, x_title, "middle")
        self.out.append(f'<text x="14" y="{self.height / 2}" text-anchor="middle" transform='
                        f'"rotate(-90 14 {self.height / 2})">{y_title}</text>')
        for i in range(6):
            y = self.y(y_most * i / 5)
            self.out.append(f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.width - 20}" '
                            f'y2="{y:.1f}" stroke="#ddd"/>')
            self.text(self.left - 6, y + 4, f"{y_most * i / 5:g}", "end")

    def x(self, value):
        return self.left + value / self.x_most * (self.width - self.left - 20)

    def y(self, value):
        return self.height - self.bottom - value / self.y_most * (
            self.height - self.bottom - self.top)

    def text(self, x, y, text, anchor="start", size=12):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                        f'font-size="{size}">{text}</text>')

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.out + ["</svg>"]) + "\n")


def plot_shares(runs, path):
    bars = []
    for run in runs:
        row = row_of(run, "decode", depth=0)
        if row and "share" in row:
            bars.append((run["model"], run["format"], run["threads"], 100 * row["share"]))
    if not bars:
        return
    plot = Plot("Decode, one sequence: bytes read as a share of what memory gives", "",
                "% of the read rate of this run", len(bars), 100)
    for i, (model, form, threads, share) in enumerate(bars):
        x, width = plot.x(i + 0.1), plot.x(0.8) - plot.x(0)
        y = plot.y(min(share, 100))
        plot.out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                        f'height="{plot.y(0) - y:.1f}" fill="{COLOURS.get(form, "#9467bd")}" '
                        f'fill-opacity="{1 if threads == 1 else 0.6}"/>')
        plot.out.append(f'<text transform="translate({x + width / 2 + 3:.1f} {plot.y(0) - 6:.1f}) '
                        f'rotate(-90)" font-size="10">{model} {form}, {threads} thr.</text>')
    plot.save(path)


def plot_depth(runs, path):
    points = sorted((row["depth"], row["median"]) for run in runs for row in run["results"]
                    if row["test"] in ("decode", "long-decode"))
    if len(points) < 2:
        return
    most = max(value for _, value in points)
    step = 10 ** (len(str(int(most))) - 1)
    plot = Plot(f"Decode at depth: {runs[0]['model']} {runs[0]['format']}, "
                f"{runs[0]['threads']} threads", "tokens before", "tokens/s", points[-1][0] * 1.05,
                (most // step + 1) * step)
    line = " ".join(f"{plot.x(d):.1f},{plot.y(v):.1f}" for d, v in points)
    plot.out.append(f'<polyline points="{line}" fill="none" stroke="#d62728" stroke-width="2"/>')
    for depth, value in points:
        plot.out.append(f'<circle cx="{plot.x(depth):.1f}" cy="{plot.y(value):.1f}" r="3.5" '
                        f'fill="#d62728"/>')
        plot.text(plot.x(depth), plot.y(0) + 16, str(depth), "middle")
        plot.text(plot.x(depth) + 6, plot.y(value) - 6, f"{value:.0f}")
    plot.save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs"))
    options = parser.parse_args()
    parts = [("Speed by format", ["formats-small", "formats-large"]),
             ("Families", ["families", "bitnet"])]
    for title, names in parts:
        runs = load(options.folder, names)
        if runs:
            print(f"### {title}\n\n{speed_table(runs)}")
    runs = load(options.folder, ["long"])
    if runs:
        print(f"### Long context\n\n{long_table(runs)}")
        plot_depth(runs, os.path.join(options.docs, "benchmarks-depth.svg"))
    plot_shares(load(options.folder, ["formats-small", "formats-large"]),
                os.path.join(options.docs, "benchmarks-decode.svg"))
    peer = peer_table(options.folder)
    if peer:
        print(f"### In turns with llama.cpp\n\n{peer}")
    for path in sorted(glob.glob(os.path.join(options.folder, "*.txt"))):
        name = os.path.basename(path)
        if name in ("machine.txt", "start-process.txt", "serve.txt", "serve-peer.txt", "server.txt",
                    "tokenizer.txt", "cgroup.txt"):
            with open(path, encoding="utf-8") as file:
                print(f"### {name}\n\n```\n{file.read().rstrip()}\n```\n")


if __name__ == "__main__":
    main()
