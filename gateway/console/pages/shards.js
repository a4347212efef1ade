// Shards and the workers that own them.
import { ask } from "./api.js";
import { columnHead, h, refill, unseen } from "./dom.js";
import { place } from "./fold.js";
import { bytes, count, counted, short } from "./format.js";
import { track } from "./overview.js";

export function shards() {
  const workers = place();
  const grid = h("div", { class: "grid" });
  const element = h("div", { class: "stack" }, unseen("h1", "Shards"),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Workers")), workers),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Shards"), h("span", { class: "soft" }, "bytes of log; the stronger the colour, the more is published")), grid));

  async function refresh() {
    const all = await ask("/v1/overview");
    refill(workers, h("table", {},
      h("thead", {}, h("tr", {}, ["Worker", { unseen: "State" }, "CPU", { unseen: "CPU as a bar" }, "Memory", "Shards", "Topics", "In/s", "Backlog"].map((title) => columnHead(title)))),
      h("tbody", {}, all.workers.map((one) => h("tr", {},
        h("td", {}, `mq-worker-${one.worker}`),
        h("td", {}, state(one.up, all.silent.includes(`mq-worker-${one.worker}`))),
        h("td", {}, `${one.cpu.toFixed(0)} %`), h("td", {}, track(one.cpu)), h("td", {}, bytes(one.memory)),
        h("td", {}, count(one.shards)), h("td", {}, count(one.topics)), h("td", {}, short(one.in)), h("td", {}, short(one.backlog)))))));
    const most = Math.max(1, ...all.shards.map((one) => one.in));
    refill(grid, all.shards.map((one, shard) => h("div", { class: "cell", "--heat": Math.round((30 * one.in) / most),
      title: `shard ${shard}, worker ${shard % all.workers.length}: ${counted(one.topics, "topics")}, ${short(one.in)} messages/s, backlog ${count(one.backlog)}, ${bytes(one.bytes)}` },
    h("b", {}, String(shard)), h("span", { class: "soft" }, all.data_dir ? bytes(one.bytes) : counted(one.topics, "topics")))));
  }

  return { element, refresh };
}

const state = (up, silent) => h("span", { class: `pill ${up && !silent ? "good" : "bad"}` }, silent ? "does not answer" : up ? "up" : "starts anew");
