// Who reads and writes in batches: named readers, and writers.
import { isOwn } from "./access.js";
import { ask, drop } from "./api.js";
import { sure } from "./dialogs.js";
import { columnHead, h, refill, say, unseen } from "./dom.js";
import { place } from "./fold.js";
import { count, moment } from "./format.js";

export function pipeline() {
  const readers = place();
  const writers = place();
  const element = h("div", { class: "stack" }, unseen("h1", "Pipeline"),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Readers"), h("span", { class: "soft" }, "the log keeps what they have not read")), readers),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Writers"), h("span", { class: "soft" }, "batches that are published once")), writers));

  async function remove(kind, name, text) {
    if (!(await sure(`Forget ${kind} ${name}?`, text, "Forget"))) return;
    try {
      await drop(`/v1/${kind}s/${encodeURIComponent(name)}`);
      say(`${name} is forgotten`);
      await refresh();
    } catch (error) { say(error.message, true); }
  }

  function rows(heads, all, none) {
    if (!all.length) return h("p", { class: "note" }, none);
    return h("table", {}, h("thead", {}, h("tr", {}, heads.map((title) => columnHead(title)))), h("tbody", {}, all.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell || ""))))));
  }

  async function refresh() {
    const [found, writing] = await Promise.all([
      ask("/v1/readers").catch((error) => { if (error.status === 503) return { readers: [], none: error.message }; throw error; }),
      ask("/v1/writers")]);
    refill(readers, rows(["Reader", "Topics", "Unread", "Heard of", { unseen: "Actions" }], found.readers.map((one) => [one.name, count(Object.keys(one.topics).length),
      count(Object.values(one.unread).reduce((sum, n) => sum + n, 0)), moment(one.changed_ns),
      isOwn(one.user) && h("button", { class: "small danger", "data-key": `reader ${one.name}`, onclick: () => remove("reader", one.name, "What it has not read is kept for it no longer.") }, "Forget")]),
    found.none ?? "Nobody reads under a name. Spark does with the option subscription."));
    refill(writers, rows(["Writer", "Batch", "State", "Messages", "Heard of", { unseen: "Actions" }], writing.writers.map((one) => [one.writer, count(one.batch),
      h("span", { class: `pill ${one.state === "published" ? "good" : one.state === "failed" ? "bad" : "warn"}`, title: one.error ?? "" }, one.state), count(one.messages), moment(one.changed_ns),
      isOwn(one.owner) && h("button", { class: "small danger", "data-key": `writer ${one.writer}`, onclick: () => remove("writer", one.writer, "A batch of its that is sent again would be published again.") }, "Forget")]),
    "Nobody has written a batch."));
  }

  return { element, refresh };
}
