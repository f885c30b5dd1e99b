// Asks for a token where the API needs one.

import { setToken, token } from "./api.js";
import { h } from "./dom.js";
import { copyable } from "./parts.js";

let then = () => {};

/** Ask for a token, unless the question is on the page already; go on with `next` when one is given. */
export function ask(next) {
  then = next;
  const box = document.getElementById("box");
  if (box.open) return;
  box.replaceChildren(
    h(
      "form",
      { class: "stacked", "data-act": "signIn" },
      h("h2", { id: "box-title" }, "Sign in"),
      h("p", {}, token() ? "The token is no longer accepted." : "This control plane wants to know who you are.", " On its machine, make a token with:"),
      copyable("divvy token create $USER --role viewer -q"),
      h("label", {}, "Token", h("input", { name: "token", type: "password", required: true, autocomplete: "off", autofocus: true })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "keep" }), "Keep it on this device"),
      h("div", { class: "line" }, h("button", { type: "submit" }, "Sign in")),
    ),
  );
  box.showModal();
}

export const actions = {
  signIn(form) {
    setToken(form.elements.token.value.trim(), form.elements.keep.checked);
    document.getElementById("box").close();
    then();
  },
};
