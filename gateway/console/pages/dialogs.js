// What is asked before anything is changed, and the form of what is published.
import { act } from "./api.js";
import { h, say } from "./dom.js";

function show(children, focus) {
  const opener = document.activeElement?.dataset.key;
  return new Promise((resolve) => {
    const dialog = h("dialog", { onclose: () => {
      dialog.remove();
      // The browser gives the focus back to the button that had it, but new figures have put another in its place.
      if (opener !== undefined && document.activeElement === document.body) document.querySelector(`[data-key="${CSS.escape(opener)}"]`)?.focus();
      resolve(dialog.returnValue);
    } });
    dialog.append(...children(dialog));
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector(focus)?.focus();
  });
}

// True when it was confirmed. The safe button has the focus.
export async function sure(title, text, verb, isDangerous = true) {
  const answer = await show((dialog) => [
    h("h1", {}, title),
    h("p", {}, text),
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "cancel", onclick: () => dialog.close("") }, "Cancel"),
      h("button", { type: "button", class: `primary confirm ${isDangerous ? "danger" : ""}`, onclick: () => dialog.close("yes") }, verb)),
  ], ".cancel");
  return answer === "yes";
}

// Asks, does it, says what came of it. `done`: what to say.
export async function change(title, text, verb, what, done, isDangerous = true) {
  if (!(await sure(title, text, verb, isDangerous))) return false;
  try {
    const answer = await act(what);
    say(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

// The values of the fields, by name, or null. `fields`: [name, label, element].
export async function form(title, fields, verb) {
  let found = null;
  await show((dialog) => {
    const submit = (event) => {
      event.preventDefault();
      found = Object.fromEntries(fields.map(([name, , element]) => [name, element.value]));
      dialog.close("yes");
    };
    return [h("form", { onsubmit: submit },
      h("h1", {}, title),
      fields.map(([name, label, element]) => { element.name = name; return h("label", {}, h("span", {}, label), element); }),
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
        h("button", { class: "primary" }, verb)))];
  }, "input, textarea");
  return found;
}

export async function publish(topic = "") {
  const said = await form(topic ? `Publish to ${topic}` : "Publish", [
    ...(topic ? [] : [["topic", "Topic", h("input", { required: true, maxlength: 200, autocomplete: "off" })]]),
    ["body", "Body", h("textarea", { spellcheck: "false" })],
    ["delay_s", "Delay in seconds", h("input", { type: "number", min: 0, step: "any", value: 0 })],
  ], "Publish");
  if (!said) return false;
  try {
    await act({ do: "publish", topic: topic || said.topic, body: said.body, delay_s: Number(said.delay_s) || 0 });
    say(`Published to ${topic || said.topic}`);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

export function keys() {
  const all = [["/", "find a topic"], ["o  s  p", "overview, shards, pipeline"], ["l", "list of topics"], ["j  k", "next and previous row"],
    ["Enter", "open the row"], ["←  →", "page before, next page"], ["n", "publish"], ["t", "light or dark"], ["Esc", "back"], ["?", "these keys"]];
  return show((dialog) => [
    h("h1", {}, "Keys"),
    h("dl", {}, all.flatMap(([key, what]) => [h("dt", {}, key.split("  ").map((one) => [h("kbd", {}, one), " "])), h("dd", {}, what)])),
    h("div", { class: "buttons" }, h("button", { class: "close", onclick: () => dialog.close("") }, "Close")),
  ], ".close");
}
