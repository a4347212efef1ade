// Topics as rows. With `sorted` and `sort` the heads are buttons, and there are all columns.
import { spark } from "./chart.js";
import { columnHead, h } from "./dom.js";
import { age, short } from "./format.js";

const number = (value, title) => h("td", { class: value ? "" : "zero", title }, value ? short(value) : "–");

// Order, head, cell, and where it is shown. "more": only in the list of all topics. "wide": not on a phone, and in the list of all topics only on a
// screen that has room for it beside the figures.
const COLUMNS = [
  ["name", "Topic", (row) => h("td", { class: "name" }, h("a", { href: topicLink(row.name), "data-key": row.name, title: row.name }, row.name), " ", badges(row))],
  ["in", "In/s", (row) => number(row.in, "published")],
  ["delivered", "Delivered/s", (row) => number(row.delivered, "also what was delivered again"), "more"],
  ["out", "Out/s", (row) => number(row.out, "finished")],
  ["", { unseen: "Published, the last minutes" }, (row) => h("td", {}, spark("in", row.history.in, "published, the last minutes")), "wide"],
  ["backlog", "Backlog", (row) => number(Math.max(row.backlog, row.jobs))],
  ["", { unseen: "Backlog, the last minutes" }, (row) => h("td", {}, spark("wait", row.history.backlog, "backlog, the last minutes")), "wide"],
  ["", "Oldest", (row) => h("td", { class: row.oldest_s ? "" : "zero", title: "how long what waits longest has waited" }, age(row.oldest_s))],
  ["in_flight", "In flight", (row) => number(row.in_flight), "more"],
  ["consumers", "Consumers", (row) => number(row.consumers), "more"],
];

export const topicLink = (name) => `#/topic/${encodeURIComponent(name)}`;

function of(kind, cell) {
  if (kind) cell.classList.add(kind);
  return cell;
}

function badges(row) {
  return [row.paused ? h("span", { class: "pill warn" }, "paused") : null, row.jobs ? h("span", { class: "pill" }, "tube") : null];
}

export function table(rows, sorted = null, sort = null) {
  const columns = sort ? COLUMNS : COLUMNS.filter(([, , , kind]) => kind !== "more");
  const heads = columns.map(([order, title, , kind]) => {
    const is = sorted && order && sorted.order === order;
    const inside = sort && order ? h("button", { onclick: () => sort(order), "data-key": `sort ${order}` }, title, is ? (sorted.rising ? " ↑" : " ↓") : "") : title;
    return columnHead(inside, { class: kind, "aria-sort": is ? (sorted.rising ? "ascending" : "descending") : null });
  });
  return h("table", {}, h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, , cell, kind]) => of(kind, cell(row)))))));
}
