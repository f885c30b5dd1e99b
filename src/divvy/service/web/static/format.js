// Figures as people read them. What is not known is a dash or "n/a", never a 0.

export const NONE = "\u2013";
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** Return a duration as its two largest units, such as "1d 4h" or "42s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds > 0 && seconds < 10) return `${seconds.toFixed(1)}s`;
  let rest = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count}${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

/** Return a fraction as a percentage. */
export function percent(part, digits = 0) {
  return part === null || part === undefined ? NONE : `${(part * 100).toFixed(digits)}%`;
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Return a count or an amount: thousands separated, small ones with two figures that count. */
export function number(value, digits = null) {
  if (value === null || value === undefined) return NONE;
  if (digits !== null) return value.toFixed(digits);
  if (value !== 0 && Math.abs(value) < 0.95) return String(Number(value.toPrecision(2)));
  return (Math.abs(value) < 100 ? tenths : grouped).format(value);
}

/** Return a count and its noun, in the plural where it is not one. */
export function many(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a time of day, with its date unless that is today. */
export function clock(at) {
  if (at === null || at === undefined) return NONE;
  const then = new Date(at * 1000);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  if (then.toDateString() === new Date().toDateString()) return time;
  return `${day(at)} ${time.slice(0, 5)}`;
}

/** Return a date as 2026-10-09. */
export function day(at) {
  const then = new Date(at * 1000);
  const two = (part) => String(part).padStart(2, "0");
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
}

/** Return a place in an order: "1st", "2nd". */
export function ordinal(place) {
  const teen = place % 100 >= 11 && place % 100 <= 13;
  return place + (teen ? "th" : { 1: "st", 2: "nd", 3: "rd" }[place % 10] ?? "th");
}

/** Return the name of a state without its counter: "preempted(2)" is "preempted". */
export function base(state) {
  return state.split("(")[0];
}
