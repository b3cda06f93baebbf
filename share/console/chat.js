// Conversations: the list of sessions beside one of them.
import { html, Component, Failed, Long, Reloaded, announce, bytes, duration, focused, oneLine, plural, visible, when } from "./ui.js";
import { Follow, call, get, keys, load, newKey, objectUrl, post, query, save, text as read } from "./api.js";
import { Approval } from "./approval.js";
import { markdown } from "./markdown.js";
import { fresh, ofExchange, take } from "./turn.js";

/** The person at this machine, as all clients of the terminal name them; so memory and sessions are the same everywhere. */
const PERSON = { connector: "tui", actorId: "local-tui", conversationId: "local-tui" };
const PAGE = 30;
/** Deltas come faster than a screen shows them. */
const DRAW_MS = 50;
/** A turn without an event for this long is silent. */
const SILENT_MS = 4_000;
const MAX_PROMPT_BYTES = 256 * 1024;

/** So many exchanges are in the page at most. */
const MAX_SHOWN = 200;
/** Nearer to the beginning than this, in pixels, the earlier ones are read. */
const NEAR = 600;

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGES = 8;
/** All images of a message, before they become base64: a body has at most 16 MiB. */
const MAX_IMAGE_BYTES = 11 << 20;

/** The connectors whose conversations can be forked. */
const FORKED = new Set(["tui", "web-api"]);

const path = id => `/api/chat/sessions/${encodeURIComponent(id)}`;
const nameOf = session => oneLine(session.displayName ?? session.title ?? "") || "(no message yet)";
const identityOf = ({ connector, actorId, conversationId, threadId }) => ({ connector, actorId, conversationId, threadId });

export class Chat extends Component {
  render({ app, id }) {
    return html`<div class=${`chat ${id ? "has-session" : ""}`}>
      <${Sessions} app=${app} id=${id} />
      ${id && id !== "new" ? html`<${Conversation} key=${id} app=${app} id=${id} />` : html`<${NewConversation} app=${app} />`}
    </div>`;
  }
}

/** The sessions, newest first, with a search over names, first prompts and ids, and over all that was said. */
class Sessions extends Reloaded {
  delay = 400;

  concerns(type) { return /^(session|submission)\./.test(type); }

  componentDidUpdate({ id }) {
    // A conversation that is not in the list yet was begun just now; its first message has given it a title.
    if (id !== this.props.id && !this.state.sessions?.some(one => one.sessionId === this.props.id)) this.soon(0);
  }

  load() {
    const { q, archived } = this.state;
    return this.latest(async signal => {
      const list = fields => get(`/api/chat/sessions${query({ empty: 0, scheduled: 0, archived: archived && 1, ...fields })}`, { signal });
      const named = this.rows((limit, after) => list({ limit, after, q }).then(({ sessions, page }) => ({ rows: sessions, next: page.after })));
      const [{ rows, next }, said] = await Promise.all([named, q?.trim() && list({ limit: 50, text: q })]);
      return () => ({ sessions: rows, more: next, said });
    });
  }

  row(session) {
    const { sessionId, updatedAt, connector, found } = session;
    return html`<li key=${sessionId}><a data-row href=${`#/chat/${encodeURIComponent(sessionId)}`} aria-current=${sessionId === this.props.id ? "true" : undefined}>
      <span class="name" dir="auto">${nameOf(session)}</span>
      ${found && html`<span class="passage" dir="auto">${oneLine(found.passage)}</span>`}
      <span class="note">${when(found?.at ?? updatedAt)}${connector !== "tui" && ` · ${oneLine(connector)}`}</span></a></li>`;
  }

  render({ id }, { sessions, more, said, q = "", archived, error }) {
    // What its name has already found is not shown twice.
    const others = said?.sessions.filter(one => !sessions.some(({ sessionId }) => sessionId === one.sessionId)) ?? [];
    return html`<aside class="sessions" aria-label="Conversations">
      <div class="tools"><a class="button main" href="#/chat/new">New</a>
        <input type="search" data-search placeholder="Search" aria-label="Search conversations" value=${q}
          onInput=${event => this.choose({ q: event.target.value }, 200)} /></div>
      <${Failed} error=${error} />
      <ul>${sessions?.map(session => this.row(session))}</ul>
      ${sessions && !sessions.length && !others.length && (!id || id === "new" || q) && html`<p class="note">${q ? "None has these words." : "No conversation yet."}</p>`}
      ${more && html`<button type="button" onClick=${() => this.more(sessions.length)}>More</button>`}
      ${others.length > 0 && html`<h2 class="note">Said in them</h2><ul>${others.map(session => this.row(session))}</ul>
        ${said.page.after && html`<p class="note">Only the newest 50 are shown.</p>`}`}
      <label class="note"><input type="checkbox" checked=${Boolean(archived)} onChange=${event => this.choose({ archived: event.target.checked }, 0)} /> archived ones</label>
    </aside>`;
  }
}

const ATTACHED = /(^|\n\n)(stdin|Attached file "[^\n]*"):\n\n```/;

/** A text file as a part of a message, as `ken chat -a` writes it: no text closes its fence. */
function fenced({ name, content }) {
  const longest = Math.max(0, ...(content.match(/`+/g) ?? []).map(run => run.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `Attached file ${JSON.stringify(name)}:\n\n${fence}\n${content.replace(/\n+$/, "")}\n${fence}`;
}

/** Sends a message to a session. Returns the answer of the gateway: a turn that has begun, or the result of a command. */
async function send(session, text, files, key) {
  if (files.length || !["tui", "web-api"].includes(session.connector)) {
    const images = await Promise.all(files.map(async file => ({ type: "image", mimeType: file.type, data: await base64(file) })));
    return post(`/agents/orchestrator/${encodeURIComponent(session.sessionId)}`, { message: text, images }, { key });
  }
  // What stands in a file is text from outside, which the agent is told.
  const body = { ...identityOf(session), session: session.sessionId, text, clientId: "console", ...(ATTACHED.test(text) && { attached: true }) };
  return post("/api/chat/events", body, { key, headers: { prefer: "respond-async" } });
}

function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

class NewConversation extends Component {
  async start(text, files, key) {
    const { workspace, model } = draftOf(NEW);
    // A repeated message finds the conversation that its first attempt has begun.
    const { session } = await post("/api/chat/sessions",
      { ...PERSON, ...(workspace?.trim() && { workspace: workspace.trim() }), ...(model && { model }) }, { key });
    await send({ ...PERSON, sessionId: session.id }, text, files, key);
    location.hash = `#/chat/${encodeURIComponent(session.id)}`;
    return session.id;
  }

  choose(change) {
    keepDraft(NEW, change);
    this.setState({});
  }

  render({ app }) {
    const { workspace = "", model = "" } = draftOf(NEW);
    return html`<main class="conversation" id="main" tabindex="-1">
      <h1>A new conversation</h1>
      <div class="turns"></div>
      <details><summary>Folder and model</summary>
        <label>Folder in which it works, if you have trusted it (<code>ken workspace trust</code>):
          <input value=${workspace} spellcheck=${false} placeholder="/home/you/src/site" onInput=${event => this.choose({ workspace: event.target.value })} /></label>
        <${ModelPicker} app=${app} value=${model} onPick=${model => this.choose({ model })} /></details>
      <${Composer} name=${NEW} onSend=${(...message) => this.start(...message)} />
    </main>`;
  }
}

function ModelPicker({ app, value, onPick }) {
  const { models } = app.state.system ?? {};
  const choices = models ? [...models.use, ...models.others] : [];
  return html`<label>Model <select value=${value} onChange=${event => onPick(event.target.value)}>
    <option value="">as configured</option>
    ${[...new Set([...choices, ...(value ? [value] : [])])].map(name => html`<option value=${name}>${oneLine(name)}</option>`)}</select></label>`;
}

class Conversation extends Component {
  constructor() {
    super();
    this.state = { turns: [] };
  }

  componentDidMount() {
    this.open();
    // Its name comes with the first message, or from another client.
    this.unsubscribe = this.props.app.onChange(({ type, sessionId }) => {
      if (sessionId === this.props.id && /^(session|submission\.queued)/.test(type) && this.state.session) this.reread();
    });
    this.tick = setInterval(() => document.hidden || (this.running() && this.setState({})), 1000);
  }

  componentWillUnmount() {
    this.isGone = true;
    this.unsubscribe();
    this.stream?.close();
    clearInterval(this.tick);
    clearTimeout(this.drawing);
  }

  running() {
    return this.state.turns.find(turn => turn.status === "running");
  }

  async open() {
    try {
      const session = await this.record();
      const page = await this.transcript(session);
      if (this.isGone) return;
      const turns = page.exchanges.map(one => one.status === "running" ? fresh(one.submissionId, one.prompt?.text, one.prompt?.receivedAt) : ofExchange(one));
      this.setState({ session, turns, older: page.page.before, isPast: false, error: null }, () => this.toEnd());
      this.stream?.close();
      // Events of a running turn come from its beginning: the offset of the page lies before it.
      this.stream = new Follow(`/agents/orchestrator/${encodeURIComponent(session.sessionId)}`, page.stream.nextOffset, {
        onEvents: events => this.take(events), onState: connection => this.setState({ connection }), onGone: () => this.open(),
      });
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error) {
    // What was deleted for good is not shown any longer.
    if (!this.isGone) this.setState(({ turns }) => ({ error, turns: error.isMissing ? [] : turns }));
  }

  async record() {
    try {
      return (await get(path(this.props.id))).session;
    } catch (error) {
      if (![404, 410].includes(error.status)) throw error;
      throw Object.assign(new Error("There is no such conversation; it may have been deleted."), { isMissing: true });
    }
  }

  transcript(session, before) {
    return get(`${path(session.sessionId)}/transcript${query({ ...identityOf(session), limit: PAGE, before })}`);
  }

  async loadOlder() {
    const { session, older } = this.state;
    if (!older || this.loading) return;
    this.loading = true;
    try {
      const page = await this.transcript(session, older);
      const all = [...page.exchanges.map(ofExchange), ...this.state.turns], turns = all.slice(0, MAX_SHOWN);
      // Far from its end, the conversation is not followed: what leaves the page there could not be told from what is new.
      const isPast = this.state.isPast || turns.length < all.length;
      if (isPast) this.stream?.close();
      const log = this.log, first = log.querySelector(".turn"), top = first?.getBoundingClientRect().top;
      this.setState({ turns, isPast, older: page.page.before }, () => {
        // What a person looks at stays where it is.
        if (first) log.scrollTop += first.getBoundingClientRect().top - top;
        this.loading = false;
      });
    } catch (error) {
      this.loading = false;
      this.setState({ error });
    }
  }

  turn(id, prompt) {
    let turn = this.state.turns.find(turn => turn.id === id);
    if (!turn) {
      turn = fresh(id, prompt);
      this.state.turns.push(turn);
    }
    turn.prompt ??= prompt;
    return turn;
  }

  take(events) {
    for (const event of events) {
      if (!event.submissionId) continue;
      const turn = this.turn(event.submissionId);
      take(turn, event);
      if (event.type === "submission_settled") announce(turn.status === "completed" ? "The answer is complete." : `The turn has ${turn.status === "failed" ? "failed" : "been cancelled"}.`);
    }
    this.draw();
  }

  draw() {
    this.drawing ??= setTimeout(() => {
      this.drawing = null;
      const { log } = this;
      const isAtEnd = log && log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      if (isAtEnd && this.state.turns.length > 2 * MAX_SHOWN && !this.running()) this.open();
      else this.setState({}, () => isAtEnd && this.toEnd());
    }, DRAW_MS);
  }

  toEnd() {
    if (this.log) this.log.scrollTop = this.log.scrollHeight;
  }

  async send(text, files, key) {
    if (this.state.isPast) await this.open();
    const answer = await send(this.state.session, text, files, key);
    const command = answer.result?.command;
    if (answer.session && answer.session.id !== this.props.id) {
      location.hash = `#/chat/${encodeURIComponent(answer.session.id)}`;
    } else if (command) {
      this.state.turns.push({ id: answer.event.id, isCommand: true, status: "completed", prompt: text, items: [{ kind: "text", id: "text", text: answer.result.text, done: true }] });
      this.reread();
    } else {
      this.turn(answer.submissionId, text);
    }
    this.setState({}, () => this.toEnd());
    return answer.session?.id;
  }

  async reread() {
    try { this.setState({ session: await this.record() }); } catch (error) { this.failed(error); }
  }

  async act(work) {
    try { await work(); this.setState({ error: null }); } catch (error) { this.setState({ error }); }
  }

  /** Goes on from before a message with another one, in a conversation of its own. */
  async resend(turn, text, key) {
    // A second attempt takes the conversation that the first one has made, also if its answer was lost.
    turn.forkKey ??= newKey();
    const { session } = await post(`${path(this.props.id)}/fork`, { before: turn.id }, { key: turn.forkKey });
    await send({ ...this.state.session, sessionId: session.id }, text, [], key);
    location.hash = `#/chat/${encodeURIComponent(session.id)}`;
  }

  stop(turn) {
    return this.act(() => post(`${path(this.props.id)}/cancel`, { ...identityOf(this.state.session), submissionId: turn.id }));
  }

  render({ app }, { session, turns, older, isPast, error, connection }) {
    const running = this.running();
    const resend = session && FORKED.has(session.connector) ? (...changed) => this.resend(...changed) : undefined;
    return html`<main class="conversation" id="main" tabindex="-1">
      <div class="title"><a class="back" href="#/chat" aria-label="Conversations">‹</a><h1 dir="auto">${session ? nameOf(session) : "…"}</h1>
        ${session && html`<${Actions} app=${app} session=${session} act=${work => this.act(work)} onChange=${() => this.reread()} />`}</div>
      ${connection === "broken" && !isPast && html`<p class="bad" role="status">The connection is lost; it is tried again.</p>`}
      <div class="turns" ref=${log => { this.log = log; }} tabindex="0" role="region" aria-label="Messages"
          onScroll=${event => event.target.scrollTop < NEAR && this.loadOlder()}>
        ${older && html`<button type="button" onClick=${() => this.loadOlder()}>Earlier messages</button>`}
        ${turns.map(turn => html`<${Turn} key=${turn.id} turn=${turn} app=${app} session=${session} onResend=${resend} />`)}
        ${isPast && html`<p><button type="button" onClick=${() => this.open()}>To the newest messages</button></p>`}
        <${Failed} error=${error} retry=${session ? undefined : () => this.open()} />
      </div>
      <${Composer} name=${this.props.id} disabled=${!session} onSend=${(...message) => this.send(...message)}
        stop=${running && (() => this.stop(running))} />
    </main>`;
  }
}

/** What a person does with a conversation as a whole. */
class Actions extends Component {
  async rename(event) {
    event.preventDefault();
    const { session, act, onChange } = this.props;
    await act(() => call("PATCH", path(session.sessionId), { body: { displayName: this.state.name.trim() } }));
    this.setState({ name: undefined });
    onChange();
  }

  async remove(purge) {
    const { session, act } = this.props;
    await act(async () => {
      await call("DELETE", `${path(session.sessionId)}${query({ purge: purge && 1 })}`);
      location.hash = "#/chat";
    });
  }

  exported(format) {
    const { session, act } = this.props;
    return act(() => save(`${path(session.sessionId)}/export${query({ ...identityOf(session), format })}`, `${session.sessionId}.${format}`));
  }

  render({ app, session, act, onChange }, { name, confirming }) {
    const pick = model => act(() => call("PATCH", path(session.sessionId), { body: { model: model || "default" } })).then(onChange);
    return html`<details class="actions"><summary>More</summary><div class="menu">
      <p class="note">${oneLine(session.sessionId)}${session.workspace && html`<br />works in ${oneLine(session.workspace)}`}</p>
      <form onSubmit=${event => this.rename(event)}><label>Name <input maxlength="120" required value=${name ?? session.displayName ?? ""}
        onInput=${event => this.setState({ name: event.target.value })} /></label><button disabled=${!name?.trim()}>Rename</button></form>
      <${ModelPicker} app=${app} value=${session.model ?? ""} onPick=${pick} />
      <button type="button" onClick=${() => this.exported("md")}>Export as Markdown</button>
      <button type="button" onClick=${() => this.exported("json")}>Export as JSON</button>
      <button type="button" onClick=${() => this.remove(false)}>Archive</button>
      ${confirming ? html`<p>All of it is deleted for good, also from memory and search, with the schedules that the agent made here.
          Cases of ken eval are left; ken doctor names the command that removes them.
          <button type="button" class="danger" onClick=${() => this.remove(true)}>Delete for good</button>
          <button type="button" onClick=${() => this.setState({ confirming: false })}>Keep it</button></p>`
        : html`<button type="button" class="danger" onClick=${() => this.setState({ confirming: true })}>Delete …</button>`}
    </div></details>`;
  }
}

/** On a telephone the focus would cover half of the conversation with a keyboard. */
const HAS_KEYBOARD = !matchMedia("(pointer: coarse)").matches;

/** An image as it is, or a text with its content. */
async function readable(file) {
  if (IMAGE_TYPES.includes(file.type)) return file;
  const wrong = new Error(`${file.name} is neither an image nor a text. Put it into the folder of the conversation, and name it.`);
  if (file.size > MAX_PROMPT_BYTES) throw new Error(`${file.name} has more than 256 KiB. Put it into the folder of the conversation, and name it.`);
  const content = await file.arrayBuffer().then(bytes => new TextDecoder("utf-8", { fatal: true }).decode(bytes)).catch(() => { throw wrong; });
  if (content.includes("\0")) throw wrong;
  return { name: file.name, content };
}

/** The draft of a new conversation. */
const NEW = "new";
const DRAFT = "ken.draft.";
const drafts = new Map();

/**
 * What is written in a conversation and not yet sent. It outlasts another page, the end of the token and, apart from the files, a reload. With
 * the message that was sent last stands its key, until the answer is known: sent again, it is the same message.
 */
function draftOf(name) {
  if (!drafts.has(name)) drafts.set(name, { text: "", ...JSON.parse(sessionStorage.getItem(DRAFT + name) ?? "{}"), files: [] });
  return drafts.get(name);
}

function keepDraft(name, change) {
  const { files, ...kept } = Object.assign(draftOf(name), change);
  try {
    if (Object.values(kept).some(Boolean)) sessionStorage.setItem(DRAFT + name, JSON.stringify(kept));
    else sessionStorage.removeItem(DRAFT + name);
  } catch {
    // The browser has no room for it; without a reload, the draft is kept all the same.
  }
}

class Composer extends Component {
  set(change) {
    keepDraft(this.props.name, change);
    this.setState({});
  }

  /** A message that was removed and is written again is another one. */
  write(text) {
    this.set({ text, ...(!text.trim() && { sent: undefined }) });
  }

  async submit() {
    const { name } = this.props, { text, files, sent, workspace, model } = draftOf(name);
    if (this.state.busy || !(text.trim() || files.length) || this.props.disabled) return;
    const texts = files.filter(file => file.content !== undefined), images = files.filter(file => file.content === undefined);
    const message = [...(text.trim() ? [text] : []), ...texts.map(fenced)].join("\n\n");
    if (new TextEncoder().encode(message).length > MAX_PROMPT_BYTES) {
      return this.setState({ error: new Error("The message has more than 256 KiB. Save it as a file in the folder of the conversation, and name it.") });
    }
    const what = JSON.stringify([message, images.map(({ name, size, lastModified }) => [name, size, lastModified]), workspace, model]);
    const key = sent?.what === what ? sent.key : newKey();
    this.set({ sent: { what, key } });
    this.setState({ busy: true, error: null });
    try {
      const place = await this.props.onSend(message, images, key) ?? name;
      // What was written meanwhile stays, or goes along to the conversation that has begun.
      const now = draftOf(name), rest = now.text.startsWith(text) ? now.text.slice(text.length).trimStart() : now.text;
      const left = { text: rest, files: now.files.filter(file => !files.includes(file)) };
      this.set({ text: "", files: [], sent: undefined, workspace: undefined, model: undefined });
      keepDraft(place, left);
      this.setState({ busy: false });
    } catch (error) {
      // The text stays, so that it can be sent again. Its key does not if the conversation of the first attempt was deleted.
      if (error.status === 410) this.set({ sent: undefined });
      this.setState({ error, busy: false });
    }
  }

  /** Takes images and texts from a choice or from the clipboard. */
  async attach(chosen) {
    try {
      const added = await Promise.all([...chosen].map(readable)), files = [...draftOf(this.props.name).files, ...added];
      const images = files.filter(file => file.content === undefined);
      if (images.length > MAX_IMAGES) throw new Error(`A message has at most ${MAX_IMAGES} images.`);
      if (images.reduce((sum, file) => sum + file.size, 0) > MAX_IMAGE_BYTES) throw new Error("The images have more than 11 MB together.");
      this.set({ files });
      this.setState({ error: null });
    } catch (error) {
      this.setState({ error });
    }
  }

  onPaste(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.attach(event.clipboardData.files);
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.submit();
    }
  }

  render({ name, stop, disabled }, { busy, error }) {
    const { text, files } = draftOf(name);
    return html`<form class="composer" onSubmit=${event => { event.preventDefault(); this.submit(); }}>
      <${Failed} error=${error} />
      <textarea rows=${Math.min(10, Math.max(2, text.split("\n").length))} aria-label="Message" placeholder="Write a message" dir="auto" value=${text}
        data-start=${HAS_KEYBOARD || undefined} ref=${HAS_KEYBOARD ? focused : undefined}
        onInput=${event => this.write(event.target.value)} onKeyDown=${event => this.onKey(event)} onPaste=${event => this.onPaste(event)}></textarea>
      ${files.length > 0 && html`<ul class="files">${files.map(file => html`<li>${oneLine(file.name)} <button type="button" aria-label=${`Remove ${file.name}`}
        onClick=${() => this.set({ files: files.filter(one => one !== file) })}>×</button></li>`)}</ul>`}
      <div class="buttons"><label class="button">Attach <input class="unseen" type="file" multiple
          onChange=${event => { const chosen = [...event.target.files]; event.target.value = ""; this.attach(chosen); }} /></label>${stop && html`<button type="button" class="danger" onClick=${stop}>Stop</button>`}
        <button class="main" disabled=${disabled || busy || !(text.trim() || files.length)}>${busy ? "Sending …" : "Send"}</button></div>
    </form>`;
  }
}

class Turn extends Component {
  keyOf = keys();

  // Many turns are in the page, and most of them stay as they are.
  shouldComponentUpdate({ turn, onResend }, state) {
    return turn.status === "running" || turn !== this.props.turn || turn.changes !== this.drawn || state !== this.state || !onResend !== !this.props.onResend;
  }

  async resend(event) {
    event.preventDefault();
    const { turn, onResend } = this.props, { text } = this.state;
    this.setState({ busy: true, error: null });
    try { await onResend(turn, text, this.keyOf(text)); } catch (error) { this.setState({ error, busy: false }); }
  }

  render({ turn, app, session, onResend }, { text, busy, error }) {
    this.drawn = turn.changes;
    const close = () => this.setState({ text: undefined, error: null });
    return html`<article class=${`turn ${turn.status}`}>
      ${text !== undefined ? html`<form class="prompt" onSubmit=${event => this.resend(event)}>
          <label>The message, changed: <textarea rows="4" dir="auto" ref=${focused} value=${text} onInput=${event => this.setState({ text: event.target.value })}
            onKeyDown=${event => event.key === "Escape" && close()}></textarea></label>
          <p class="note">A new conversation goes on from here. This one stays as it is.</p><${Failed} error=${error} />
          <div class="buttons"><button type="button" onClick=${close}>Back</button><button class="main" disabled=${busy || !text.trim()}>Send</button></div></form>`
        : html`<${Said} turn=${turn} session=${session} onEdit=${onResend && !turn.isCommand && (() => this.setState({ text: turn.prompt }))} />`}
      <${Answer} turn=${turn} app=${app} session=${session} />
    </article>`;
  }
}

function Said({ turn, session, onEdit }) {
  return turn.prompt !== undefined && html`<div class="prompt"><h2 class="unseen">You</h2><${Long} text=${turn.prompt} view=${text => html`<div class="plain" dir="auto">${text}</div>`} />
    ${session && turn.images > 0 && html`<div class="pictures">${Array.from({ length: turn.images }, (_, at) =>
      html`<${Picture} key=${at} name=${`Image ${at + 1} of ${turn.images}`} path=${`${path(session.sessionId)}/images/${turn.id}/${at}`} />`)}</div>`}
    <p class="note"><span>${turn.at && when(turn.at)}${turn.images > 0 && ` · ${plural(turn.images, "image")}`}</span>${onEdit && html` <button type="button" class="small" aria-label="Edit this message and send it again" onClick=${onEdit}>Edit</button>`}</p></div>`;
}

/** An image of a message, small until it is chosen. It is in the page only while it is near the screen: there may be hundreds of 11 MB. */
class Picture extends Component {
  componentDidMount() {
    this.observer = new IntersectionObserver(entries => this.seen(entries.at(-1).isIntersecting), { rootMargin: "600px" });
    this.observer.observe(this.button);
  }

  componentWillUnmount() {
    this.isGone = true;
    this.observer.disconnect();
    this.drop();
  }

  async seen(isNear) {
    this.isNear = isNear;
    if (!isNear) return this.drop();
    if (this.url || this.isLoading) return;
    this.isLoading = true;
    const url = await objectUrl(this.props.path).catch(() => null);
    this.isLoading = false;
    this.url = url;
    if (this.isGone || !this.isNear) return this.drop();
    // A copy in another conversation has no images.
    this.setState({ url, isMissing: !url });
  }

  /** What stands below keeps its place. */
  drop() {
    if (!this.url) return;
    URL.revokeObjectURL(this.url);
    this.url = null;
    if (!this.button) return;
    const { offsetWidth, offsetHeight } = this.button;
    this.setState({ url: null, size: { minWidth: `${offsetWidth}px`, minHeight: `${offsetHeight}px` } });
  }

  render({ name }, { url, size, isMissing, isWhole }) {
    if (isMissing) return html`<span class="note">${name} is not kept here or cannot be shown.</span>`;
    return html`<button type="button" class="picture" ref=${button => { this.button = button; }} style=${url ? undefined : size} aria-label=${name} aria-expanded=${Boolean(isWhole)}
      onClick=${() => this.setState({ isWhole: !isWhole })}>
      ${url && html`<img src=${url} alt="" class=${isWhole ? "whole" : ""} onError=${() => this.setState({ isMissing: true })} />`}</button>`;
  }
}

function Answer({ turn, app, session }) {
  return html`
    <div class="answer"><h2 class="unseen">ken</h2>
      ${turn.items.filter(item => !item.hidden).map((item, at) => html`<${ITEMS[item.kind] ?? Row} key=${item.id ?? at} item=${item} session=${session} />`)}
      ${turn.sources?.length > 0 && html`<ol class="sources" aria-label="Sources">${turn.sources.map(source =>
        html`<li key=${source.id} value=${source.number}><${Source} source=${source} /></li>`)}</ol>`}
      ${turn.status !== "running" && turn.sentences?.length > 0 && html`<${Support} turn=${turn} />`}
      ${turn.status === "running" && html`<${Why} turn=${turn} app=${app} />`}
      ${turn.status === "cancelled" && html`<p class="note">Stopped.</p>`}
      ${turn.status === "failed" && html`<p class="failed">${oneLine(turn.error ?? "The turn failed.")}</p>`}
      <${Cost} turn=${turn} />
      ${turn.status !== "running" && !turn.isCommand && html`<div class="did"><${More} run=${turn.id} what="Details" title="Details" />
        ${turn.items.some(item => CHANGING.has(item.kind)) && html`<${More} run=${turn.id} what="Changes" title="Changed files" />`}</div>`}
    </div>`;
}

/** Kinds of items that may have changed files. */
const CHANGING = new Set(["tool", "task"]);

/** What a turn did, and what it has changed in the workspace, if a person asks. */
class More extends Component {
  async open(event) {
    if (!event.target.open || this.state.View) return;
    this.setState({ error: null });
    try { this.setState({ View: (await load(() => import("./changes.js")))[this.props.what] }); } catch (error) { this.setState({ error }); }
  }

  render({ run, title }, { View, error }) {
    return html`<details onToggle=${event => this.open(event)}><summary>${title}</summary><${Failed} error=${error} />${View && html`<${View} run=${run} />`}</details>`;
  }
}

/** A source of an answer. Its text is read when it is opened. */
class Source extends Component {
  async open(event) {
    if (!event.target.open || this.state.text !== undefined) return;
    try {
      const { record } = await get(`/api/knowledge/${encodeURIComponent(this.props.source.id)}`);
      this.setState({ text: record.content });
    } catch (error) {
      this.setState({ error });
    }
  }

  render({ source: { title, score, id } }, { text, error }) {
    const name = html`${oneLine(title)} <span class="note" title="How well it fits">${score.toFixed(2)}</span>`;
    // Past turns are sources, too, and have no text of their own.
    if (!id.startsWith("kb-")) return name;
    return html`<details onToggle=${event => this.open(event)}><summary>${name}</summary>
      <${Failed} error=${error} />${text !== undefined && html`<div class="plain" dir="auto"><${Long} text=${text} /></div>`}</details>`;
  }
}

/** How the sources support each sentence, with the passage that says it best. */
function Support({ turn: { items, sentences } }) {
  // The places are counted in bytes.
  const text = new TextEncoder().encode(items.findLast(item => item.kind === "text")?.text ?? "");
  const said = ({ start, end }) => oneLine(new TextDecoder().decode(text.slice(start, end)));
  const weak = sentences.filter(one => one.contradicted).length;
  return html`<div class="did"><details><summary class=${weak ? "bad" : ""}>Support by sentence${weak > 0 && `, ${weak} contradicted`}</summary>
    <ol class="rows">${sentences.map(one => html`<li key=${one.start}><span dir="auto">${said(one)}</span>
      <span class="note"> ${one.support.toFixed(2)}</span>${one.contradicted && html` <span class="bad">contradicted</span>`}
      ${one.passage && html`<br /><span class="note" dir="auto">${oneLine(one.source)} “${oneLine(one.passage)}”</span>`}</li>`)}</ol></details></div>`;
}

function Cost({ turn: { status, tokens, cost, model, durationMs } }) {
  if (status === "running" || !tokens) return null;
  const facts = [model && oneLine(model), `${tokens} tokens`, cost > 0 && `$${cost.toFixed(4)}`, durationMs !== undefined && duration(durationMs)];
  return html`<p class="note">${facts.filter(Boolean).join(" · ")}</p>`;
}

/** Why nothing happens at a running turn: after some seconds of silence ken is asked. */
class Why extends Component {
  componentDidMount() {
    this.timer = setInterval(() => document.hidden || this.look(), 1000);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  async look() {
    const { turn } = this.props;
    const silent = Date.now() - (turn.eventAt ?? new Date(turn.at ?? Date.now()).getTime());
    this.setState({ silent });
    if (silent < SILENT_MS || this.asked > Date.now() - SILENT_MS) return;
    this.asked = Date.now();
    const why = await get(`/api/why/${encodeURIComponent(turn.id)}`).catch(() => null);
    this.setState({ cause: why?.cause });
  }

  render({ app, turn }, { silent = 0, cause }) {
    const [problem] = app.state.problems;
    if (turn.items.some(item => item.kind === "approval" && !item.stamp)) return html`<p class="working">It waits for a decision.</p>`;
    return html`<p class="working"><span class="dot" aria-hidden="true"></span>${silent < SILENT_MS ? "Working …"
      : html`Nothing for ${duration(silent)}. ${cause && oneLine(cause)}
        ${problem && html` <span class="bad">${oneLine(problem.what)}: ${oneLine(problem.why)}</span>`}`}</p>`;
  }
}

const ITEMS = {
  text: ({ item }) => html`<${Long} text=${item.text} view=${markdown} />`,
  thinking: ({ item }) => html`<details class="thinking"><summary>Thinking${item.done ? "" : " …"}</summary>
    <${Long} text=${item.text} view=${text => html`<div class="plain" dir="auto">${text}</div>`} /></details>`,
  approval: ({ item }) => html`<${Approval} id=${item.id} stamp=${item.stamp} />`,
};

const STATE = { running: "…", completed: "✓", failed: "✗" };

/** A tool, a task or a log line. */
function Row({ item, session }) {
  const ms = item.durationMs ?? (item.state === "running" && item.since ? Date.now() - item.since : undefined);
  return html`<p class=${`row ${item.state}`}><span aria-hidden="true">${STATE[item.state]}</span> <span class="unseen">${item.state}: </span>
    <code>${oneLine(item.name)}</code>${item.calls > 0 && ` · ${plural(item.calls, "call")}`}${item.interrupted && " · interrupted"}
    ${item.text && html` <span class="note">${oneLine(item.text)}</span>`} <span class="note">${duration(ms)}</span></p>
    ${item.output && session && html`<${Output} output=${item.output} session=${session} />`}`;
}

/** The whole text of a tool, of which the model was shown a part. It is read when it is opened. */
class Output extends Component {
  path() {
    const { session, output } = this.props;
    return `${path(session.sessionId)}/blobs/${output.blob}${query(identityOf(session))}`;
  }

  async open(event) {
    if (!event.target.open || this.state.text !== undefined) return;
    try { this.setState({ text: await read(this.path()), error: null }); } catch (error) { this.setState({ error }); }
  }

  async save() {
    try { await save(this.path(), `${this.props.output.blob.slice(0, 16)}.txt`); } catch (error) { this.setState({ error }); }
  }

  render({ output }, { text, error }) {
    return html`<div class="did"><details onToggle=${event => this.open(event)}><summary>Whole output, ${bytes(output.bytes)}</summary>
      <${Failed} error=${error} />${text !== undefined && html`<pre tabindex="0" aria-label="Whole output"><${Long} text=${visible(text)} /></pre>`}
      <button type="button" class="small" onClick=${() => this.save()}>Save as a file</button></details></div>`;
  }
}
