// The place of a table. A table that is wider than its place is folded: each row becomes a card, and each figure has its head above it.
import { h } from "./dom.js";

// The width at which a place had no room. It stays folded until its width changes, so nothing jumps as figures get longer and shorter.
const tooNarrow = new WeakMap();

function fit(place) {
  if (tooNarrow.get(place) !== place.clientWidth) place.classList.remove("folded");
  if (place.scrollWidth > place.clientWidth) {
    tooNarrow.set(place, place.clientWidth);
    place.classList.add("folded");
  }
  const table = place.querySelector("table");
  if (table && place.classList.contains("folded")) nameCells(table);
}

function nameCells(table) {
  const heads = [...table.tHead.rows[0].cells].map((head) => (head.querySelector(".unseen") ? "" : head.textContent));
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i]; });
}

const widths = new ResizeObserver((changes) => changes.forEach(({ target }) => fit(target)));
const contents = new MutationObserver((changes) => new Set(changes.map(({ target }) => target)).forEach(fit));

export function place(...children) {
  const element = h("div", { class: "scroll" }, ...children);
  widths.observe(element);
  contents.observe(element, { childList: true });
  return element;
}
