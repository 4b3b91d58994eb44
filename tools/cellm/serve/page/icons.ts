// Line drawings on a 20 x 20 grid, in the colour of the text around them.
import { h, svg } from "./dom";

const PATHS = {
  plus: "M10 4v12M4 10h12",
  close: "M5 5l10 10M15 5L5 15",
  send: "M10 16V4M4.5 9.5L10 4l5.5 5.5",
  stop: "M6 6h8v8H6z",
  again: "M15.5 10a5.5 5.5 0 1 1-1.8-4.1M15.5 3.5v3.2h-3.2",
  edit: "M12.5 4.5l3 3L7 16H4v-3zM11 6l3 3",
  copy: "M7 7h9v9H7zM4 13V4h9",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  sliders: "M4 6h6M14 6h2M4 14h2M10 14h6M12 4v4M8 12v4",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h13",
  pulse: "M3 10h3l2-5 4 10 2-5h3",
  fork: "M6 4v12M6 11c0-3 8-1.5 8-6M14 4v2M12.5 5.2L14 3.6l1.5 1.6",
  trash: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
  export: "M10 3v9M6.5 8.5L10 12l3.5-3.5M4 15.5h12",
  import: "M10 12V3M6.5 6.5L10 3l3.5 3.5M4 15.5h12",
  sun: "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.4 4.4l1 1M14.6 14.6l1 1M15.6 4.4l-1 1M5.4 14.6l-1 1",
  moon: "M16 11.5A6.5 6.5 0 0 1 8.5 4 6.5 6.5 0 1 0 16 11.5",
  auto: "M10 3.5a6.5 6.5 0 1 0 0 13zM10 3.5a6.5 6.5 0 0 1 0 13",
  help: "M7.5 7.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .8-1 1.7M10 14.6v.1",
  key: "M12.5 3.5a4 4 0 1 0 0 8 4 4 0 0 0 0-8M9.6 10.4L4 16M6 14l1.5 1.5",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGElement {
  return svg(
    "svg",
    { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name] }),
  );
}

// A button that is only a drawing; `label` is its name for everybody, `keys` its shortcut.
export function iconButton(
  name: IconName,
  label: string,
  click: (event: MouseEvent) => void,
  keys = "",
): HTMLButtonElement {
  const title = keys === "" ? label : `${label} (${keys})`;
  return h(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title, onclick: click },
    icon(name),
  );
}

// The mark of cellm: a cell and its nucleus.
export function brandMark(): SVGElement {
  return svg(
    "svg",
    { class: "brand-mark", viewBox: "0 0 32 32", "aria-hidden": "true", focusable: "false" },
    svg("rect", { class: "brand-cell", x: 2, y: 2, width: 28, height: 28, rx: 9 }),
    svg("circle", { class: "brand-nucleus", cx: 18.5, cy: 14, r: 5.5 }),
    svg("circle", { class: "brand-dot", cx: 10.5, cy: 21.5, r: 2 }),
  );
}
