// Messages and what is in them: text, JSON or hex. They are looked at, never taken.
import { ask } from "./api.js";
import { h, refill } from "./dom.js";
import { bytes, count, moment } from "./format.js";

const WHOLE = 1 << 20;
const LIMIT = 20;

const raw = (message) => ("base64" in message ? Uint8Array.from(atob(message.base64), (c) => c.charCodeAt(0)) : new TextEncoder().encode(message.text));

export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")}`);
  }
  return lines.join("\n");
}

// JSON with colours, as elements.
function coloured(text) {
  const parts = text.split(/("(?:\\.|[^"\\])*"(?:\s*:)?|-?\b\d[\d.eE+-]*\b|\btrue\b|\bfalse\b|\bnull\b)/);
  return parts.map((part, i) => (i % 2 ? h("span", { class: part.endsWith(":") ? "k" : part.startsWith('"') ? "s" : "n" }, part) : part));
}

function parsed(text) {
  try {
    return /^\s*[[{"]/.test(text) ? JSON.stringify(JSON.parse(text), null, 2) : null;
  } catch {
    return null;
  }
}

function shown(message, as) {
  if (as === "hex" || (as === "auto" && "base64" in message)) return h("pre", { class: "hex" }, hex(raw(message)));
  const text = message.text ?? new TextDecoder().decode(raw(message));
  const json = as === "text" ? null : parsed(text);
  return json === null ? h("pre", {}, text) : h("pre", {}, coloured(json));
}

function line(message) {
  if ("base64" in message) return [...raw(message).subarray(0, 48)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return message.text.slice(0, 300).replace(/\s+/g, " ");
}

export function bodies(name) {
  let first; // undefined: the newest
  let as = "auto";
  let last = null;
  const isOpen = new Set();
  const forms = h("div", { class: "choice", role: "group", "aria-label": "Show bodies as" });
  const list = h("div");
  const pages = h("div", { class: "buttons" });
  const element = h("section", { class: "card" },
    h("header", {}, h("h2", {}, "Messages"), h("span", { class: "soft" }, "looked at, not taken"), h("span", { class: "grow" }), forms), list, pages);

  function draw(found) {
    last = found;
    refill(forms, [["auto", "Auto"], ["text", "Text"], ["hex", "Hex"]].map(([one, text]) =>
      h("button", { class: "small", "aria-pressed": String(as === one), "data-key": one, onclick: () => { as = one; draw(last); } }, text)));
    refill(list, found.messages.length ? found.messages.toReversed().map(one) : h("p", { class: "note" }, found.latest ? "The log has none of these any more." : "No message yet."));
    const begin = found.messages[0]?.seq ?? found.latest;
    refill(pages,
      h("span", { class: "soft grow" }, found.latest ? `seq ${count(found.earliest)} – ${count(found.latest - 1)}` : ""),
      h("button", { class: "small", "data-key": "oldest", disabled: begin <= found.earliest, onclick: () => show(found.earliest) }, "Oldest"),
      h("button", { class: "small", "data-key": "older", disabled: begin <= found.earliest, onclick: () => show(Math.max(found.earliest, begin - LIMIT)) }, "Older"),
      h("button", { class: "small", "data-key": "newer", disabled: found.next >= found.latest, onclick: () => show(found.next) }, "Newer"),
      h("button", { class: "small", "data-key": "newest", disabled: first === undefined, onclick: () => show(undefined) }, "Newest, as they come"));
  }

  function one(message) {
    const more = h("div");
    const details = h("details", { class: "message", open: isOpen.has(message.seq), ontoggle: () => {
      if (details.open) { isOpen.add(message.seq); whole(message, more); } else isOpen.delete(message.seq);
    } },
    h("summary", { "data-key": `seq ${message.seq}` },
      h("span", { class: "seq" }, `#${count(message.seq)}`), h("span", { class: "body" }, line(message) || "(empty)"),
      h("span", { class: "when" }, bytes(message.bytes)), h("span", { class: "when" }, moment(message.time_ns))), more);
    if (details.open) whole(message, more);
    return details;
  }

  async function whole(message, more) {
    const size = "base64" in message ? raw(message).length : new TextEncoder().encode(message.text).length;
    refill(more, facts(message), shown(message, as));
    if (size < message.bytes && !message.isWhole) {
      const { messages } = await ask("/v1/peek", { topic: name, from: message.seq, limit: 1, body: WHOLE });
      if (messages[0]?.seq === message.seq) {
        Object.assign(message, messages[0], { isWhole: true });
        refill(more, facts(message), message.bytes > WHOLE ? h("p", { class: "soft" }, `The first ${bytes(WHOLE)} of ${bytes(message.bytes)}`) : null, shown(message, as));
      }
    }
  }

  function facts(message) {
    const all = [["id", message.id], ["job", message.job], ["priority", message.pri], ["time to run", message.ttr_ms !== undefined ? `${message.ttr_ms} ms` : undefined],
      ["delay", message.delay_ms ? `${message.delay_ms} ms` : undefined], ["batch of", message.parts], [`headers (${message.headers?.of})`, message.headers?.text]];
    return h("div", { class: "facts" }, all.filter(([, value]) => value !== undefined).map(([title, value]) => h("span", {}, `${title} `, h("span", { class: "mono" }, String(value)))));
  }

  async function show(from) { first = from; await refresh(true); }

  async function refresh(isWanted = false) {
    if (first !== undefined && !isWanted && last) return; // what stands still is not asked again
    // Somebody reads one, which newer ones would push out.
    if (!isWanted && last?.messages.some((message) => isOpen.has(message.seq))) return;
    const found = await ask("/v1/peek", { topic: name, from: first, limit: LIMIT });
    if (last && !isWanted && found.latest === last.latest && found.earliest === last.earliest) return;
    draw(found);
  }

  return { element, refresh };
}
