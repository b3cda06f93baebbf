// What all pages share: elements as templates, and texts as people read them.
import { h, render, Component, Fragment } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { h, render, Component, Fragment };
export const html = htm.bind(h);

// Characters without a width of their own, controls and directional marks. The same list as in the terminal clients.
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ud800-\\udfff" +
  "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]", "gu");

/** Names every character that a person who decides about a text would not see: `<U+202E>`. */
export const visible = text => String(text ?? "").replace(UNSEEN,
  c => `<U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);

export const oneLine = text => visible(String(text ?? "").replace(/\s+/g, " ").trim());

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export function bytes(count) {
  const units = ["bytes", "KB", "MB", "GB"];
  let unit = 0;
  while (count >= 1024 && unit < 3) { count /= 1024; unit++; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

export function duration(ms) {
  if (ms == null) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(s % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

/** A time as an element: today by the clock, else by the day; whole on hover. */
export function when(time) {
  const date = new Date(time);
  if (isNaN(date)) return oneLine(time);
  const text = date.toDateString() === new Date().toDateString() ? TIME.format(date) : `${DAY.format(date)}, ${TIME.format(date)}`;
  return html`<time dateTime=${date.toISOString()} title=${FULL.format(date)}>${text}</time>`;
}

/** Says something to people who do not see the page. */
export function announce(text) {
  const region = document.getElementById("announce");
  region.textContent = "";
  // A reader speaks only what changes, so the same text twice needs two changes.
  setTimeout(() => { region.textContent = text; }, 50);
}

/** Text of more than this many characters is folded: laying out a line of a megabyte takes seconds. */
export const FOLD = 20_000;

/** A text of any length. What is folded says its size, and how to see all of it. */
export class Long extends Component {
  render({ text, view }, { all }) {
    const isShort = all || text.length <= FOLD;
    const show = view ?? (text => html`<span class="plain">${text}</span>`);
    return html`${show(isShort ? text : text.slice(0, FOLD))}
      ${!isShort && html`<p class="note">The first ${bytes(FOLD)} of ${bytes(text.length)} are shown.
        <button type="button" onClick=${() => this.setState({ all: true })}>Show all</button></p>`}`;
  }
}

/** For `ref`: gives an element the focus when it appears. As a new function for each drawing it would do so each time. */
export const focused = element => element?.focus();

/** Whether a click is the second of a double one, which does nothing that the first has not done. */
export const isDouble = event => event.detail > 1;

/** An error, in a box that a screen reader speaks at once. */
export const Failed = ({ error, retry }) => error && html`<div class="failed" role="alert">
  <p>${oneLine(error.message)}</p>${error.hint && html`<p class="note">${oneLine(error.hint)}</p>`}
  ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;

/** So many rows a list begins with, and so many more come at a time. */
const ROWS = 50;
/** The most rows of an answer. */
const MAX_ROWS = 100;

/** A list that is loaded again soon after a change that concerns it. Each load ends the one before, so that an old answer never replaces a new one. */
export class Reloaded extends Component {
  wanted = ROWS;

  componentDidMount() {
    this.load();
    this.stop = this.props.app.onChange(({ type }) => { if (this.concerns(type)) this.soon(this.delay); });
  }

  componentWillUnmount() {
    this.stop();
    clearTimeout(this.timer);
  }

  soon(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), ms);
  }

  /** Looks for something else, from the beginning of the list. */
  choose(change, ms) {
    this.wanted = ROWS;
    this.setState(change);
    this.soon(ms);
  }

  more(shown) {
    this.wanted = shown + ROWS;
    this.load();
  }

  /**
   * Reads pages until there are as many rows as are wanted: a list that was read on stays as long when it is loaded again, without what was
   * deleted. `read` returns the rows of a page, and where the next one begins.
   */
  async rows(read) {
    const rows = [];
    let next;
    do {
      const page = await read(Math.min(MAX_ROWS, this.wanted - rows.length), next);
      rows.push(...page.rows);
      next = page.next;
    } while (next && rows.length < this.wanted);
    return { rows, next };
  }

  /** `ask` loads something with a signal, and returns how the state changes by it. */
  async latest(ask) {
    this.asked?.abort();
    const { signal } = (this.asked = new AbortController());
    try {
      const found = await ask(signal);
      this.setState(state => ({ ...found(state), error: null }));
    } catch (error) {
      if (!signal.aborted) this.setState({ error });
    }
  }
}
