// Builds elements and changes the page as little as possible. Text is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element. Properties are attributes; null and false leave one out; children are elements, text,
 * arrays of them, or null.
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Return an SVG element. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") {
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== false));
  return element;
}

/**
 * Change `old` into `fresh`, keeping every node that can stay: focus, hover, scrolling and what somebody is
 * typing survive an update. `data-key` ties a child to its subject; what is below `data-own` is left alone.
 */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // as an attribute the content security policy forbids it
    else old.setAttribute(name, value);
  }
  if (!fresh.hasAttribute("data-own")) morphChildren(old, fresh);
  if (old !== document.activeElement) follow(old, fresh);
  return old;
}

/** Give a control the value that the page says it has; once touched, it no longer follows its attributes. */
function follow(old, fresh) {
  if (old.hasAttribute("data-own")) return;
  if (old.tagName === "SELECT") old.value = fresh.value;
  else if (old.tagName === "INPUT" && old.type === "checkbox") old.checked = fresh.checked;
  else if (old.tagName === "INPUT" && old.dataset.act) old.value = fresh.value;
}

/** Change the children of `old` into those of `fresh`. */
export function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    const key = want.dataset?.key;
    const have = key ? keyed.get(key) : at && !at.dataset?.key ? at : null;
    if (!have) {
      old.insertBefore(want, at);
    } else {
      if (have === at) at = at.nextSibling;
      else old.insertBefore(have, at);
      morph(have, want);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let hiding = 0;

/** Say something for a few seconds, to eyes and to screen readers. */
export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.dataset.shown = "";
  clearTimeout(hiding);
  hiding = setTimeout(() => delete place.dataset.shown, 5000);
}
