// One topic: figures, channels and their consumers, its tube, its messages; and all that can be done to them.
import { act, ask } from "./api.js";
import { bodies } from "./bodies.js";
import { chart } from "./chart.js";
import { change, form, publish } from "./dialogs.js";
import { columnHead, h, refill, say } from "./dom.js";
import { place } from "./fold.js";
import { age, bytes, count, counted, duration, short } from "./format.js";

const CHANNEL_HEADS = ["Channel", "Lag", "Waiting", "In flight", "Deferred", "Oldest", "Delivered/s", "Finished/s", "Finished", "Requeued", "Timed out", "Consumers", { unseen: "Actions" }];
const STATES = ["ready", "reserved", "delayed", "buried", "using", "watching", "waiting"];

export function topic(name) {
  const top = h("div", { class: "title" });
  const cards = h("div", { class: "cards" });
  const channelList = place();
  const channels = h("section", { class: "card" }, h("header", {}, h("h2", {}, "Channels")), channelList);
  const tube = h("section", { class: "card" });
  const messages = bodies(name);
  const isOpen = new Set();
  const element = h("div", {}, top, cards, h("div", { class: "stack" }, channels, tube, messages.element));

  const about = (channel) => (channel ? { topic: name, channel } : { topic: name });
  const called = (channel) => (channel ? `channel ${channel}` : `topic ${name}`);
  const after = async (done) => { if (await done) await refresh(); };

  const pause = (channel, paused) => after(paused
    ? change(`Go on with ${called(channel)}?`, "Messages are handed out again.", "Go on", { do: "unpause", ...about(channel) }, "It goes on", false)
    : change(`Pause ${called(channel)}?`, "Nothing of it is handed out until somebody lets it go on. Publishing goes on.", "Pause", { do: "pause", ...about(channel) }, "Paused", false));
  const empty = (channel, waiting) => after(change(`Empty ${called(channel)}?`, channel
    ? `${counted(waiting, "messages that wait for this channel are", "message that waits for this channel is")} gone for it, for good.`
    : `${counted(waiting, "messages that wait for a first channel are", "message that waits for a first channel is")} gone, for good.`,
  "Empty", { do: "empty", ...about(channel) }, "Emptied"));
  async function remove(channel, text) {
    if (await change(`Delete ${called(channel)}?`, text, "Delete", { do: "delete", ...about(channel) }, "Deleted")) {
      if (channel) await refresh(); else location.hash = "#/topics";
    }
  }
  const kick = (found) => after(change("Kick the buried jobs?", found.buried ? `${counted(found.buried, "buried jobs become", "buried job becomes")} ready again.`
    : `No job is buried, so ${counted(found.delayed, "delayed ones become", "delayed one becomes")} ready at once.`,
    "Kick", { do: "kick", topic: name }, (answer) => `${counted(answer.kicked, "jobs")} kicked`, false));

  async function add() {
    const said = await form("New channel", [["channel", "Name", h("input", { required: true, maxlength: 64 })]], "Make");
    if (said) await after(act({ do: "make", topic: name, channel: said.channel }).then(() => true, (error) => { say(error.message, true); return false; }));
  }

  async function rewind(channel) {
    const said = await form(`Deliver again to ${channel}`, [["seq", "From this seq on (empty: from the oldest that is there)", h("input", { type: "number", min: 0 })]], "Next");
    if (!said) return;
    const from = said.seq === "" ? {} : { seq: Number(said.seq) };
    await after(change(`Deliver again to ${channel}?`, `Its consumers get all messages from ${said.seq === "" ? "the oldest" : `seq ${count(Number(said.seq))}`} on, once more, and nothing before. What had been finished before anybody ever asked for this is not known any more.`,
      "Deliver again", { do: "rewind", topic: name, channel, ...from }, "It begins anew"));
  }

  async function pauseTube(found) {
    const said = await form("Pause the tube", [["seconds", "For so many seconds (0: it goes on)", h("input", { type: "number", min: 0, value: found.pause_left_s || 60 })]], "Pause");
    if (said) await after(act({ do: "pause-tube", topic: name, seconds: Number(said.seconds) }).then(() => { say("Done"); return true; }, (error) => { say(error.message, true); return false; }));
  }

  function head(found) {
    refill(top, h("h1", {}, found.name), found.paused ? h("span", { class: "pill warn" }, "paused") : null,
      h("span", { class: "soft" }, `shard ${found.shard}, worker ${found.worker}`), h("span", { class: "grow" }),
      h("div", { class: "buttons" },
        found.may.publish && h("button", { class: "primary", "data-key": "publish", onclick: () => after(publish(name)) }, "Publish…"),
        found.may.manage && [h("button", { "data-key": "channel", onclick: add }, "New channel…"),
        h("button", { "data-key": "pause", onclick: () => pause(null, found.paused) }, found.paused ? "Go on" : "Pause"),
        found.waiting ? h("button", { class: "danger", "data-key": "empty", onclick: () => empty(null, found.waiting) }, "Empty") : null,
        h("button", { class: "danger", "data-key": "delete", onclick: () => remove(null, `The topic, its ${counted(found.channels.length, "channels")} and ${counted(found.published, "messages")} are gone, for good.`) }, "Delete")]));
  }

  function figures(found) {
    const { history } = found;
    const backlog = Math.max(found.waiting, found.jobs, ...found.channels.map((one) => one.backlog + one.deferred));
    const card = (title, value, unit, kind, values) => h("section", { class: "card figure" }, h("h2", {}, title),
      h("div", { class: "value" }, value, h("small", {}, unit)), chart([{ kind, values }], { name: title }));
    const ages = [found.oldest_s, ...found.channels.map((one) => one.oldest_s)].filter((one) => one);
    const oldest = ages.length ? `, oldest ${age(Math.max(...ages))}`.replace(/ (?!oldest)/g, "\u00a0") : "";
    refill(cards,
      card("Published", short(found.rates.in), "messages/s", "in", history.in),
      card("Finished", short(found.rates.out), `per s, ${short(found.rates.delivered)} delivered`, "soft", []),
      card("Backlog", short(backlog), `${backlog === 1 ? "message" : "messages"}${oldest}`, "wait", history.backlog),
      card("In all", short(found.published), `${found.published === 1 ? "message" : "messages"}, ${bytes(found.bytes)}`, "soft", []));
  }

  function channelRows(channel) {
    const key = `channel ${channel.name}`;
    const lag = channel.backlog + channel.in_flight + channel.deferred;
    const row = h("tr", {},
      h("td", { class: "name" }, h("a", { href: "#", role: "button", "data-key": key, "aria-expanded": String(isOpen.has(channel.name)), onclick: (event) => {
        event.preventDefault();
        if (!isOpen.delete(channel.name)) isOpen.add(channel.name);
        draw(last);
      } }, isOpen.has(channel.name) ? "▾ " : "▸ ", channel.name), " ", channel.paused ? h("span", { class: "pill warn" }, "paused") : null),
      ...[lag, channel.backlog, channel.in_flight, channel.deferred].map((n) => h("td", { class: n ? "" : "zero" }, count(n))),
      h("td", { class: channel.oldest_s ? "" : "zero" }, age(channel.oldest_s)),
      ...[rate(channel, "delivered"), rate(channel, "finished_since_start")].map((n) => h("td", { class: n ? "" : "zero" }, short(n))),
      ...[channel.finished, channel.requeued, channel.timed_out].map((n) => h("td", { class: n ? "" : "zero" }, short(n))),
      h("td", { class: channel.consumers ? "" : "zero" }, count(channel.consumers)),
      h("td", {}, last.may.manage && h("div", { class: "buttons" },
        h("button", { class: "small", "data-key": `${key} pause`, onclick: () => pause(channel.name, channel.paused) }, channel.paused ? "Go on" : "Pause"),
        h("button", { class: "small", "data-key": `${key} rewind`, onclick: () => rewind(channel.name) }, "Again…"),
        h("button", { class: "small danger", "data-key": `${key} empty`, onclick: () => empty(channel.name, lag) }, "Empty"),
        h("button", { class: "small danger", "data-key": `${key} delete`, onclick: () => remove(channel.name, `${counted(lag, "messages that wait for it are", "message that waits for it is")} gone for it, and its ${counted(channel.consumers, "consumers are", "consumer is")} sent away.`) }, "Delete"))));
    if (!isOpen.has(channel.name)) return [row];
    return [row, h("tr", {}, h("td", { class: "left", colspan: 13 }, channel.clients.length ? consumers(channel.clients) : h("span", { class: "soft" }, "Nobody consumes it now.")))];
  }

  function consumers(clients) {
    const heads = ["Consumer", "Address", "Software", "Ready", "In flight", "Finished", "Requeued", "For"];
    const now = Date.now() / 1000;
    return place(h("table", {}, h("thead", {}, h("tr", {}, heads.map((title) => columnHead(title, { class: "left" })))),
      h("tbody", {}, clients.map((one) => h("tr", {}, [one.hostname || one.client_id || "–", one.remote_address, one.user_agent || "–", count(one.ready), count(one.in_flight), count(one.finished), count(one.requeued),
        one.connect_ts ? duration(now - one.connect_ts) : "–"].map((text) => h("td", { class: "left" }, text)))))));
  }

  // Of each channel, a second: since it was asked the time before. What begins anew with its worker is no fall.
  const rate = (channel, what) => {
    const before = earlier?.channels.find((one) => one.name === channel.name);
    return before ? Math.max(0, channel[what] - before[what]) / (last.at - earlier.at) : 0;
  };

  let last = null;
  let earlier = null;
  function draw(found) {
    if (found !== last) {
      earlier = last;
      last = { ...found, at: performance.now() / 1000 };
    }
    head(found);
    figures(found);
    channels.hidden = !found.channels.length;
    refill(channelList, h("table", {}, h("thead", {}, h("tr", {}, CHANNEL_HEADS.map((title) => columnHead(title)))),
      h("tbody", {}, found.channels.flatMap(channelRows))));
    tube.hidden = !found.tube;
    if (found.tube) {
      refill(tube, h("header", {}, h("h2", {}, "Tube"), found.tube.pause_left_s ? h("span", { class: "pill warn" }, `paused for ${duration(found.tube.pause_left_s)}`) : null, h("span", { class: "grow" }),
        found.may.manage && [h("button", { class: "small", "data-key": "kick", disabled: !(found.tube.buried || found.tube.delayed), onclick: () => kick(found.tube) }, "Kick"),
        h("button", { class: "small", "data-key": "pause tube", onclick: () => pauseTube(found.tube) }, "Pause…")]),
      h("div", { class: "states" }, STATES.map((state) => h("div", { class: state === "buried" && found.tube.buried ? "bad" : "" }, h("b", {}, short(found.tube[state])), h("span", { class: "soft" }, state)))));
    }
  }

  async function refresh() {
    draw(await ask("/v1/topic", { name }));
    messages.element.hidden = !last.may.read;
    if (last.may.read) await messages.refresh();
  }

  return { element, refresh, topic: name, mayPublish: () => Boolean(last?.may.publish) };
}
