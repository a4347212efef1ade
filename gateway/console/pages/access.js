// Who looks at this, where there are users, and what that one may. The session is a cookie that no script sees.
import { ask, send } from "./api.js";
import { h, say } from "./dom.js";

const me = { users: false, user: null, may: {} };
const button = document.getElementById("user");
let asking = null;

// With some topic at least. What one may do with a certain topic is in the broker's answer about it.
export const mayAny = (right) => Boolean(me.may[right]?.length);
// What belongs to nobody is anybody's; who manages everything manages what is others'.
export const isOwn = (owner) => !owner || owner === me.user || Boolean(me.may.manage?.includes("*"));

async function learn() {
  Object.assign(me, await ask("/v1/login"));
  button.hidden = !me.user;
  button.textContent = me.user ?? "";
  button.title = me.user ? `You are ${me.user}: log out` : "";
}

// Whether something else is known now than before: a reload changes what users may.
export async function changed() {
  if (!me.users) return false;
  const before = JSON.stringify(me);
  await learn();
  return JSON.stringify(me) !== before;
}

// When it comes back, somebody is there, or nobody has to be. One form, however many ask.
export function enter() {
  asking ??= (async () => {
    await learn();
    while (me.users && !me.user) {
      await form();
      await learn();
    }
  })().finally(() => { asking = null; });
  return asking;
}

function form() {
  return new Promise((resolve) => {
    const user = h("input", { name: "user", autocomplete: "username", placeholder: "empty: by token", spellcheck: "false" });
    const secret = h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true });
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const submit = async (event) => {
      event.preventDefault();
      try {
        await send("/v1/login", user.value ? { user: user.value, password: secret.value } : { token: secret.value });
        dialog.remove();
        resolve();
      } catch (error) {
        problem.textContent = error.message;
        problem.hidden = false;
        secret.select();
      }
    };
    const dialog = h("dialog", { class: "login", oncancel: (event) => event.preventDefault() }, h("form", { onsubmit: submit },
      h("h1", {}, "Log in"),
      h("label", {}, h("span", {}, "User"), user), h("label", {}, h("span", {}, "Password or token"), secret), problem,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Log in"))));
    document.body.append(dialog);
    dialog.showModal();
    user.focus();
  });
}

button.addEventListener("click", async () => {
  try {
    await send("/v1/logout", {});
    location.reload();
  } catch (error) { say(error.message, true); }
});
