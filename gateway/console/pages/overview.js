// The first page: what the broker does now, who is busiest, what it runs on.
import { mayAny } from "./access.js";
import { ask } from "./api.js";
import { chart } from "./chart.js";
import { publish } from "./dialogs.js";
import { columnHead, h, refill, unseen } from "./dom.js";
import { place } from "./fold.js";
import { bytes, count, duration, short } from "./format.js";
import { table } from "./table.js";

function figure(title, value, unit, lines) {
  return h("section", { class: "card figure" },
    h("h2", {}, title),
    h("div", { class: "value" }, value, unit ? h("small", {}, unit) : null),
    chart(lines, { name: `${title}, the last minutes` }));
}

export function track(percent) {
  const bar = h("i");
  bar.style.width = `${Math.min(100, Math.max(0, percent))}%`;
  return h("div", { class: "track", role: "img", "aria-label": `${Math.round(percent)} %` }, bar);
}

export function overview() {
  const cards = h("div", { class: "cards" });
  const busiest = place();
  const workers = place();
  const disk = h("div");
  const about = h("dl");
  const element = h("div", {}, unseen("h1", "Overview"),
    cards,
    h("div", { class: "columns" },
      h("section", { class: "card" },
        h("header", {}, h("h2", {}, "Busiest topics"), h("span", { class: "grow" }),
          mayAny("publish") && h("button", { class: "small", onclick: () => publish() }, "Publish…"), h("a", { class: "soft", href: "#/topics" }, "All topics →")),
        busiest),
      h("div", { class: "stack" },
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Processes")), workers),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Disk")), disk),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Broker")), about))));

  async function refresh() {
    const [all, found] = await Promise.all([ask("/v1/overview"), ask("/v1/find", { limit: 14 })]);
    const { history } = all;
    refill(cards,
      figure("Published", short(all.rates.in), "messages/s", [{ kind: "in", values: history.in }]),
      figure("Finished", short(all.rates.out), `per s, ${short(all.rates.delivered)} delivered`,
        [{ kind: "soft", values: history.delivered }, { kind: "out", values: history.out }]),
      figure("Backlog", short(all.backlog), all.backlog === 1 ? "message" : "messages", [{ kind: "wait", values: history.backlog }]),
      figure("Connections", count(all.totals.connections), "", [{ kind: "soft", values: history.connections }]));
    refill(busiest, found.rows.length ? table(found.rows) : h("p", { class: "note" }, "Nothing has been published yet. Press n to publish a first message."));
    refill(workers, h("table", {},
      h("thead", {}, h("tr", {}, ["Process", "CPU", "Memory"].map((title) => columnHead(title)))),
      h("tbody", {}, all.processes.map((one) => h("tr", {},
        h("td", {}, `${one.name} `, all.silent.includes(one.name) && h("span", { class: "pill bad" }, "does not answer")), h("td", {}, `${one.cpu.toFixed(0)} %`), h("td", {}, bytes(one.memory)))))));
    refill(disk, all.data_dir ? [
      track(100 * (1 - all.disk.free / all.disk.all)),
      h("p", { class: "soft" }, `${bytes(all.disk.free)} free of ${bytes(all.disk.all)}; the log has ${bytes(all.disk.log)}.`),
      h("p", { class: "soft" }, { always: "Each answer waits for the disk.", interval: "Synced in the background, by default every 50 ms.", never: "Synced when the kernel sees fit." }[all.sync]),
    ] : h("p", { class: "soft" }, "Messages are in memory only."));
    refill(about, [
      fact("Version", all.version), fact("Up for", duration((all.now_wall_ns - all.started_wall_ns) / 1e9)),
      fact("Topics", count(all.topics)), fact("Workers", `${all.workers.filter((one) => one.up).length} of ${all.workers.length}`),
      all.addresses.map((address) => [h("dt", {}, address.split("://")[0]), h("dd", { class: "mono" }, address.split("://")[1])])].flat(2));
  }

  return { element, refresh };
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
