// Lines of the last minutes: an SVG path each, drawn anew with every sample.
import { s } from "./dom.js";

// The first samples take up a part of the width, so that their line is seen to be short.
const POINTS = 90;
const FEW = 30;

const stepOf = (values, width) => width / (Math.min(POINTS, Math.max(FEW, values.length)) - 1);

function path(values, width, height, most) {
  const step = stepOf(values, width);
  const begin = width - step * (values.length - 1);
  const y = (value) => height - 1.5 - (value / most) * (height - 4);
  return values.map((value, i) => `${i ? "L" : "M"}${(begin + i * step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

// `lines`: {kind: "in" | "out" | "wait" | "soft", values}; all of them on one scale.
export function chart(lines, { width = 300, height = 46, name = "" } = {}) {
  const most = Math.max(1e-9, ...lines.flatMap(({ values }) => values)) * 1.05;
  const drawn = lines.flatMap(({ kind, values }) => {
    if (values.length < 2) return [];
    const line = path(values, width, height, most);
    const begin = width - stepOf(values, width) * (values.length - 1);
    return [
      s("path", { class: `area-${kind}`, d: `${line}L${width} ${height}L${begin.toFixed(1)} ${height}Z` }),
      s("path", { class: `line-${kind}`, d: line }),
    ];
  });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": name }, ...drawn);
}

export function spark(kind, values, name) {
  const drawn = chart([{ kind, values }], { width: 110, height: 22, name });
  drawn.setAttribute("class", "spark");
  return drawn;
}
