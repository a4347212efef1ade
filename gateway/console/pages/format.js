// Numbers, sizes and times as people read them. A number and its unit stay on one line.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (n) => whole.format(n);

// With `things` after it: 1 topic, 2 topics. `one` is the singular where that is not the plural without its last letter.
export const counted = (n, things, one = things.slice(0, -1)) => `${whole.format(n)} ${n === 1 ? one : things}`;

export function short(n) {
  if (n < 10_000) return n < 10 && n > 0 && n % 1 ? n.toFixed(1) : whole.format(n);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size) return `${(n / size).toFixed(n / size < 100 ? 1 : 0)}\u00a0${unit}`;
  }
  return whole.format(n);
}

export function bytes(n) {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) return `${(n / size).toFixed(n / size < 100 ? 1 : 0)}\u00a0${unit}`;
  }
  return `${whole.format(n)}\u00a0B`;
}

export function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [size, unit] = parts[first];
  const rest = parts[first + 1];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return rest && seconds % size >= rest[0] ? `${text} ${Math.floor((seconds % size) / rest[0])} ${rest[1]}` : text;
}

export function moment(ns) {
  const at = new Date(ns / 1e6);
  const day = new Date().toDateString() === at.toDateString() ? "" : at.toLocaleDateString("sv-SE") + " ";
  return day + at.toLocaleTimeString("sv-SE") + "." + String(at.getMilliseconds()).padStart(3, "0");
}

// How long something has waited; null: it is not known.
export function age(seconds) {
  if (seconds === null) return "?";
  if (seconds === 0) return "–";
  return seconds < 1 ? "< 1 s" : duration(seconds).replace(/^(\d+ (?:d|h)) .*/, "$1");
}
