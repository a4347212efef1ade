// All topics: found, ordered and cut into pages by the broker, so there may be any number.
import { mayAny } from "./access.js";
import { ask } from "./api.js";
import { form, publish } from "./dialogs.js";
import { h, refill, say } from "./dom.js";
import { place } from "./fold.js";
import { count, counted } from "./format.js";
import { table } from "./table.js";
import { act } from "./api.js";

const PAGE = 50;
const SHOWN = [["all", "All"], ["channels", "Channels"], ["tubes", "Tubes"], ["backlog", "Backlog"], ["paused", "Paused"]];

export function topics(fields) {
  const wanted = { search: fields.get("search") ?? "", show: fields.get("show") ?? "all", order: fields.get("order") ?? "activity",
    rising: fields.get("rising") ?? "", from: Number(fields.get("from") ?? 0) };
  const title = h("h1", {}, "Topics");
  const chosen = h("div", { class: "choice", role: "group", "aria-label": "Which topics" });
  const list = place();
  const pages = h("div", { class: "buttons" });
  const element = h("div", {},
    h("div", { class: "title" }, title, chosen, h("span", { class: "grow" }),
      mayAny("manage") && h("button", { onclick: make }, "New topic…"), mayAny("publish") && h("button", { class: "primary", onclick: () => publish() }, "Publish…")),
    h("section", { class: "card" }, list), h("div", { class: "title" }, h("span", { class: "grow" }), pages));

  const query = document.getElementById("query");
  if (document.activeElement !== query) query.value = wanted.search;

  function go(change) {
    const next = { ...wanted, from: 0, ...change };
    location.hash = `#/topics?${new URLSearchParams(Object.entries(next).filter(([, value]) => value !== "" && value !== 0))}`;
  }

  function sort(order) {
    const rising = wanted.order === order ? (wanted.rising === "1" ? "0" : "1") : order === "name" ? "1" : "0";
    go({ order, rising });
  }

  async function make() {
    const said = await form("New topic", [["topic", "Name", h("input", { required: true, maxlength: 64, pattern: "[.a-zA-Z0-9_\\-]+(#ephemeral)?" })]], "Make");
    if (!said) return;
    try {
      await act({ do: "make", topic: said.topic });
      location.hash = `#/topic/${encodeURIComponent(said.topic)}`;
    } catch (error) { say(error.message, true); }
  }

  async function refresh() {
    const found = await ask("/v1/find", { ...wanted, limit: PAGE });
    title.textContent = wanted.search ? `${count(found.found)} of ${counted(found.topics, "topics")}` : counted(found.found, "topics");
    refill(chosen, SHOWN.map(([show, text]) => h("button", { "aria-pressed": String(show === wanted.show), "data-key": show, onclick: () => go({ show }) }, text)));
    refill(list, found.rows.length ? table(found.rows, { order: wanted.order, rising: wanted.rising === "1" }, sort)
      : h("p", { class: "note" }, wanted.search ? `No topic has “${wanted.search}” in its name.` : "There is none."));
    const last = Math.min(found.found, wanted.from + PAGE);
    refill(pages,
      h("span", { class: "soft" }, found.found ? `${count(wanted.from + 1)} – ${count(last)} of ${count(found.found)}` : ""),
      h("button", { "data-key": "before", disabled: wanted.from === 0, onclick: () => go({ from: Math.max(0, wanted.from - PAGE) }) }, "← Before"),
      h("button", { "data-key": "after", disabled: last >= found.found, onclick: () => go({ from: wanted.from + PAGE }) }, "After →"));
  }

  return { element, refresh };
}
