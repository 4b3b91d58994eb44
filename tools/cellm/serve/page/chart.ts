// Two small pictures of the last minutes: areas on top of each other, and one line. SVG without text;
// the legend beside it says the numbers.
import { svg } from "./dom";

const WIDTH = 280;

export interface Point {
  readonly at: number; // milliseconds
  readonly values: readonly number[]; // bottom to top
}

interface Frame {
  readonly x: (at: number) => number;
  readonly y: (value: number) => number;
}

function frame(points: readonly Point[], span_ms: number, height: number, top: number): Frame {
  const end = points.length > 0 ? points[points.length - 1]!.at : 0;
  // A little room above, so that a peak does not touch the edge.
  const most = Math.max(top, 1e-9) * 1.08;
  return {
    x: (at) => WIDTH * (1 - (end - at) / span_ms),
    y: (value) => height - (height - 1) * (value / most),
  };
}

function coordinates(points: readonly [number, number][]): string {
  return points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
}

function picture(height: number, label: string, grid: number, children: SVGElement[]): SVGElement {
  const lines: SVGElement[] = [];
  for (let i = 1; i <= grid; i++) {
    const y = Math.round((height * i) / (grid + 1)) + 0.5;
    lines.push(svg("path", { class: "chart-grid", d: `M0 ${y}H${WIDTH}` }));
  }
  return svg(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    ...lines,
    ...children,
  );
}

// `names` are the classes of the areas, bottom to top: "area-NAME".
export function stackedAreas(
  points: readonly Point[],
  names: readonly string[],
  span_ms: number,
  height: number,
  label: string,
): SVGElement {
  const total = (point: Point): number => point.values.reduce((sum, value) => sum + value, 0);
  const { x, y } = frame(points, span_ms, height, Math.max(0, ...points.map(total)));
  const base = points.map(() => 0);
  const areas = names.map((name, series) => {
    const lower: [number, number][] = points.map((point, i) => [x(point.at), y(base[i]!)]);
    points.forEach((point, i) => (base[i] += point.values[series] ?? 0));
    const upper: [number, number][] = points.map((point, i) => [x(point.at), y(base[i]!)]);
    const outline = [...upper, ...lower.reverse()];
    const d = outline.length > 0 ? `M${coordinates(outline)}Z` : "";
    return svg("path", { class: `area area-${name}`, d });
  });
  return picture(height, label, 3, areas);
}

export function lineWithArea(
  points: readonly Point[],
  span_ms: number,
  height: number,
  label: string,
): SVGElement {
  const { x, y } = frame(points, span_ms, height, Math.max(0, ...points.map((p) => p.values[0] ?? 0)));
  const line: [number, number][] = points.map((point) => [x(point.at), y(point.values[0] ?? 0)]);
  if (line.length === 0) return picture(height, label, 1, []);
  const outline: [number, number][] = [
    ...line,
    [line[line.length - 1]![0], height],
    [line[0]![0], height],
  ];
  return picture(height, label, 1, [
    svg("path", { class: "area area-rate", d: `M${coordinates(outline)}Z` }),
    svg("path", { class: "line line-rate", d: `M${coordinates(line)}` }),
  ]);
}
