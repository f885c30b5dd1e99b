// Who looks at the page and what the API would let them do: what is not allowed is not offered.

import { get, Problem, token } from "./api.js";

let known = null; // { token, me }

/** Ask who the token belongs to, once for each token. */
export async function loadMe() {
  if (known?.token === token()) return;
  try {
    known = { token: token(), me: await get("/v1/me") };
  } catch (error) {
    if (!(error instanceof Problem) || error.status === 401) throw error;
    known = null;
  }
}

/** Return whether the shares of an account's children may be divided; an empty path is the top. */
export function maySplit(parent) {
  if (!known) return true;
  return parent ? known.me.may_split.includes(parent) : known.me.role === "admin";
}

/** Return whether nodes may be drained. */
export function mayDrain() {
  return known ? known.me.may_drain : true;
}
