// Which page is shown, its figures every two seconds while somebody looks, and the keys that work everywhere.
import { changed, enter, mayAny } from "./access.js";
import { ask } from "./api.js";
import { keys, publish } from "./dialogs.js";
import { h } from "./dom.js";
import { overview } from "./overview.js";
import { pipeline } from "./pipeline.js";
import { shards } from "./shards.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";

const EVERY_MS = 2000;
const main = document.getElementById("main");
const query = document.getElementById("query");
const root = document.documentElement;
let page = null;
let turn = 0;
let shown = "";
let timer = 0;

// A page is {element, refresh()}; refresh asks and draws. One that is left is asked no more.
function route() {
  const [path, fields] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  if (parts[0] === "topics") return topics(new URLSearchParams(fields));
  if (parts[0] === "topic" && parts[1]) return topic(parts[1]);
  if (parts[0] === "shards") return shards();
  if (parts[0] === "pipeline") return pipeline();
  return overview();
}

function open() {
  const own = ++turn;
  // The same list in another order, or its next page: whoever has the keyboard goes on where he is.
  const path = location.hash.split("?")[0];
  const focused = path === shown && main.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  shown = path;
  document.querySelector("dialog[open]")?.close("");
  page = route();
  page.problem = h("div", { hidden: true, class: "problem", role: "alert" });
  main.replaceChildren(page.problem, page.element);
  for (const link of document.querySelectorAll("#nav a")) {
    const here = location.hash.split("?")[0] || "#/";
    const is = link.hash === here || (link.hash === "#/topics" && here.startsWith("#/topic/"));
    if (is) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  clearTimeout(timer);
  refresh(own).then(() => {
    if (own === turn && focused !== undefined && document.activeElement === document.body) {
      main.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }
  });
}

async function refresh(own) {
  if (!document.hidden) {
    try {
      if (await changed()) {
        open();
        return;
      }
      await page.refresh();
      if (own === turn) page.problem.hidden = true;
    } catch (error) {
      if (error.status === 401) {
        await enter();
        open();
        return;
      }
      if (own === turn) { page.problem.textContent = error.message; page.problem.hidden = false; }
    }
    if (own === turn) health();
  }
  if (own === turn) timer = setTimeout(() => refresh(own), EVERY_MS);
}

async function health() {
  const pill = document.getElementById("health");
  try {
    const { health: text, draining } = await ask("/v1/health");
    pill.textContent = draining ? "drains" : text === "OK" ? "healthy" : text.replace("NOK - ", "");
    pill.className = `pill ${draining ? "warn" : text === "OK" ? "good" : "bad"}`;
  } catch {
    pill.textContent = "no answer";
    pill.className = "pill bad";
  }
}

function theme(wanted) {
  root.dataset.theme = wanted ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function switchTheme() {
  const wanted = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", wanted); } catch { /* it holds until the page is left */ }
  theme(wanted);
}

function move(step) {
  const rows = [...main.querySelectorAll("tbody td.name a")];
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))]?.focus();
}

// What an arrow is for, where that is there; elsewhere it scrolls.
const ARROWS = { ArrowDown: "td.name a", ArrowUp: "td.name a",
  ArrowLeft: 'button[data-key="before"]', ArrowRight: 'button[data-key="after"]' };
const leaf = (arrow) => main.querySelector(ARROWS[arrow]).click();

const KEYS = {
  "/": () => query.focus(),
  o: () => { location.hash = "#/"; },
  l: () => { location.hash = "#/topics"; },
  s: () => { location.hash = "#/shards"; },
  p: () => { location.hash = "#/pipeline"; },
  ArrowRight: () => leaf("ArrowRight"), ArrowLeft: () => leaf("ArrowLeft"),
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  n: () => { if (page.topic ? page.mayPublish() : mayAny("publish")) publish(page.topic ?? ""); },
  t: switchTheme,
  "?": keys,
  Escape: () => { if (page.topic) location.hash = "#/topics"; },
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = KEYS[event.key];
  if (!action || (event.key in ARROWS && !main.querySelector(ARROWS[event.key]))) return;
  event.preventDefault();
  action();
});

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = `#/topics?search=${encodeURIComponent(query.value)}`;
});
let typed = 0;
query.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => { location.hash = `#/topics?search=${encodeURIComponent(query.value)}`; }, 180);
});
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", keys);
addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { clearTimeout(timer); refresh(turn); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(stored()));

function stored() {
  try { return localStorage.getItem("theme") ?? undefined; } catch { return undefined; }
}

theme(stored());
enter().catch(() => {}).then(open);
