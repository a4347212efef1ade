// Elements without a library: h("td", {class: "left"}, "text", element). Text is text: nothing that came in a message is ever HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
// What only a screen reader says.
export const unseen = (tag, text) => h(tag, { class: "unseen" }, text);
// The head of a column: its title, or { unseen: title }.
export const columnHead = (title, attributes) => h("th", { scope: "col", ...attributes }, title.unseen ? unseen("span", title.unseen) : title);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// New children in the place of the old; whoever had the keyboard's focus has it again, by its data-key.
export function refill(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.dataset.key : undefined;
  element.replaceChildren(...children.flat().filter(Boolean));
  if (key !== undefined) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

let saidTimer = 0;
export function say(text, isBad = false) {
  const said = document.getElementById("said");
  said.replaceChildren(h("p", { class: isBad ? "bad" : "" }, text));
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => said.replaceChildren(), isBad ? 8000 : 3500);
}
