// A request for an approval: read whole, shown whole, and only then decided.
import { html, Component, FOLD, Failed, Long, announce, bytes, focused, oneLine, visible, when } from "./ui.js";
import { get, keys, post, text } from "./api.js";

/** Nobody decides about what came up under the hand just now. */
const SETTLE_MS = 500;

/** The parts of an action that a person needs first, and their names. All others follow under their own. */
const NAMES = {
  tool: "tool", git: "git", argv: "command", arguments: "arguments", cwd: "folder", stdin: "input", network: "network",
  canChange: "may change", changedUnseen: "changed by the agent and seen by nobody",
  compared: "must stay unchanged until it runs", timeoutSeconds: "time limit",
};
/** Numbers that only repeat what the diff shows. */
const LEFT_OUT = new Set(["count", "diffBytes"]);

const isDigest = value => typeof value === "string" && /^([0-9a-f]{40}|[0-9a-f]{64})$/i.test(value);

/** A value without digests and permission bits, which mean nothing to a person; undefined if nothing else is in it. */
function withoutDigests(value) {
  if (isDigest(value)) return undefined;
  if (Array.isArray(value)) {
    const kept = value.map(withoutDigests).filter(item => item !== undefined);
    return kept.length || !value.length ? kept : undefined;
  }
  if (value && typeof value === "object") {
    const kept = Object.entries(value)
      .filter(([name, field]) => !(name === "mode" && typeof field === "number"))
      .map(([name, field]) => [name, withoutDigests(field)]).filter(([, field]) => field !== undefined);
    return kept.length ? Object.fromEntries(kept) : undefined;
  }
  return value;
}

/** A word as a person types it into a shell. */
const quoted = word => typeof word !== "string" ? JSON.stringify(word)
  : /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

function file({ path, before, after }) {
  const isProgram = version => version && version.mode & 0o111;
  const what = !before && after?.link ? "new, a symbolic link" : !before && isProgram(after) ? "new, executable"
    : !before ? "new" : !after ? "removed"
    : isProgram(after) && !isProgram(before) ? "changed, becomes executable" : "changed";
  return `${oneLine(path)} (${what})`;
}

function shown(value) {
  if (typeof value === "string") return visible(value);
  if (Array.isArray(value) && value.every(item => typeof item === "string")) return visible(value.join("\n"));
  const line = JSON.stringify(value);
  return visible(line.length > 100 ? JSON.stringify(value, null, 2) : line);
}

/** One part of an action as text, or null if there is nothing to show. */
function partText(field, value) {
  if (value === null || value === undefined) return null;
  if (field === "argv" && Array.isArray(value)) return visible(value.map(quoted).join(" "));
  if (field === "arguments") return shown(JSON.parse(JSON.stringify(value)));
  if (field === "stdin" && typeof value === "string") return visible(value.replace(/\n$/, ""));
  if (field === "network" && value === false) return "none";
  if (field === "timeoutSeconds") return `${value} s`;
  if (field === "canChange" && Array.isArray(value) && !value.length) return "nothing";
  if (Array.isArray(value) && !value.length) return null;
  if (field === "files" && Array.isArray(value)) return value.map(one => (one?.path ? file(one) : shown(one))).join("\n");
  const kept = withoutDigests(value);
  return kept === undefined ? null : shown(kept);
}

/** The parts of an action as names and texts, the most important first. */
function parts(action) {
  if (!action || typeof action !== "object") return action ? [["action", visible(action)]] : [];
  const fields = [...Object.keys(NAMES).filter(name => name in action),
    ...Object.keys(action).filter(name => !(name in NAMES) && !LEFT_OUT.has(name))];
  return fields.map(field => {
    const size = field === "stdin" && typeof action.stdin === "string"
      ? ` (${new TextEncoder().encode(action.stdin).length} bytes)` : "";
    return [(NAMES[field] ?? oneLine(field)) + size, partText(field, action[field])];
  }).filter(([, text]) => text !== null);
}

const saysCut = text => typeof text === "string" && / bytes (are|is) shown\]\s*$/.test(text);

async function digestOf(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads a request with all of its diff, and finds out what may be decided here. */
async function read(id) {
  const record = await get(`/api/approvals/${encodeURIComponent(id)}`);
  const metadata = record.request.metadata ?? {};
  const seen = { record, diff: metadata.diff ?? "", whole: metadata.whole };
  seen.isCut = metadata.cut !== undefined || saysCut(metadata.action) || (!seen.whole && saysCut(seen.diff));
  // What the page folds was not seen whole at a glance, so no grant for the session rests on it.
  seen.isLong = Boolean(seen.whole) || seen.diff.length > FOLD || JSON.stringify(metadata.action ?? "").length > FOLD;
  if (seen.whole && record.status === "pending") {
    seen.diff = await text(`/api/approvals/${encodeURIComponent(id)}/diff`);
    // Over HTTP from another machine a browser computes no digests, and without one the approval would name nothing.
    if (crypto.subtle) seen.digest = await digestOf(seen.diff);
    else seen.isCut = true;
  }
  return seen;
}

function decider(decision) {
  const as = decision.decidedAs;
  const known = as?.kind === "local" ? `uid ${as.uid}${as.user ? ` (${as.user})` : ""}`
    : as?.kind === "secret" ? "with the secret" : as?.kind === "messenger" ? `messenger user ${as.userId}` : "";
  return [decision.decidedBy, known].filter(Boolean).map(oneLine).join(", ");
}

/** How a request ended, and who decided it. */
export function outcome({ status, decision }) {
  const what = status === "approved" && decision?.scope === "session" ? "approved for this session" : oneLine(status);
  return decision ? `${what} by ${decider(decision)}` : what;
}

const KIND = { "+": "added", "-": "removed" };
/** A difference as lines, each in the colour of what it does. */
export function diffLines(text) {
  // Before its first hunk, a file has lines that only look like those of its content.
  let isContent = false;
  return text.replace(/\n$/, "").split("\n").map(line => {
    if (line.startsWith("@@")) isContent = true;
    else if (line.startsWith("diff ")) isContent = false;
    const kind = line.startsWith("@@") ? "hunk" : isContent ? KIND[line[0]] ?? "" : "hunk";
    return html`<span class=${kind}>${visible(line) || " "}${"\n"}</span>`;
  });
}

/** A card with one request. `id` is all it needs; the request itself is always read anew before it can be approved. */
export class Approval extends Component {
  keyOf = keys();

  componentDidMount() {
    this.load();
  }

  componentDidUpdate({ id, stamp }) {
    // A change that came over the event stream: it was decided, or it has expired.
    if (id !== this.props.id || stamp !== this.props.stamp) this.load();
  }

  async load() {
    const { id } = this.props;
    try {
      const seen = await read(id);
      if (id !== this.props.id) return;
      const wasPending = this.state.seen?.record.status === "pending";
      this.setState({ seen, error: null });
      if (wasPending && seen.record.status !== "pending") announce(`${oneLine(seen.record.request.summary)}: ${outcome(seen.record)}`);
      this.settle ??= setTimeout(() => this.setState({ settled: true }), SETTLE_MS);
    } catch (error) {
      this.setState({ error });
    }
  }

  componentWillUnmount() {
    clearTimeout(this.settle);
  }

  /** What may be decided now, and why not more. */
  allowed() {
    const { seen, settled, busy, typed } = this.state;
    const target = oneLine(seen.record.request.target);
    const isHigh = seen.record.request.risk === "high";
    const mayDeny = settled && !busy;
    const mayApprove = mayDeny && !seen.isCut && (!isHigh || typed?.trim() === target);
    return { mayDeny, mayApprove, maySession: mayApprove && !seen.isLong, isHigh, target };
  }

  async decide(approved, scope) {
    const { seen, reason } = this.state;
    const { mayDeny, mayApprove, maySession } = this.allowed();
    if (approved ? !(scope === "session" ? maySession : mayApprove) : !mayDeny) return;
    const body = { decidedBy: "console", approved };
    if (scope === "session") body.scope = scope;
    if (!approved && reason?.trim()) body.reason = reason.trim();
    if (approved && seen.digest) body.digest = seen.digest;
    this.setState({ busy: true, error: null });
    try {
      await post(`/api/approvals/${encodeURIComponent(this.props.id)}/decision`, body, { key: this.keyOf(JSON.stringify(body)) });
    } catch (error) {
      // Somebody else was faster: the record says who.
      if (error.status !== 409) this.setState({ error });
    }
    await this.load();
    this.setState({ busy: false }, () => this.refocus());
  }

  /** The button or field that had the focus is gone. Without this the next key would be one of the page. */
  refocus() {
    if (document.activeElement === document.body) this.card?.focus({ preventScroll: true });
  }

  onKey(event) {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "a") this.decide(true);
    else if (event.key === "d") this.setState({ denying: true });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  render({ id, link }, { seen, error }) {
    if (!seen) return html`<article class="card approval" aria-busy=${!error}>
      ${error ? html`<${Failed} error=${error} retry=${() => this.load()} />` : html`<p class="note">Reading ${id} …</p>`}</article>`;
    const { request, status } = seen.record;
    const isPending = status === "pending";
    return html`<article class="card approval risk-${oneLine(request.risk)}" tabindex="0" aria-labelledby=${`what-${id}`} ref=${card => { this.card = card; }}
        onKeyDown=${event => isPending && this.onKey(event)}>
      <h3 id=${`what-${id}`}>${oneLine(request.summary)}</h3>
      <dl>
        <dt>where</dt><dd>${oneLine(request.target)}</dd>
        ${request.reason && html`<dt>why</dt><dd>${oneLine(request.reason)}</dd>`}
        <dt>risk</dt><dd><strong class="risk">${oneLine(request.risk)}</strong>${` · ${oneLine(request.actionType)} · asked by ${oneLine(request.requestedBy)}`}
          ${isPending && html` · until ${when(request.expiresAt)}`}</dd>
        ${parts(request.metadata?.action).map(([name, text]) => html`<dt>${name}</dt>
          <dd><pre><${Long} text=${text} /></pre></dd>`)}
      </dl>
      ${seen.diff && html`<pre class="diff" tabindex="0" aria-label="What would change"><${Long} text=${seen.diff} view=${diffLines} /></pre>`}
      ${seen.isLong && html`<p class="note">It is long${seen.diff && `: the whole change has ${bytes(seen.whole?.bytes ?? seen.diff.length)}`}.
        It can be approved once, not for the session.</p>`}
      ${isPending ? this.choices(seen) : html`<p class="outcome ${oneLine(status)}" role="status">${outcome(seen.record)}
        ${seen.record.decision && html` · ${when(seen.record.decision.decidedAt)}`}
        ${seen.record.decision?.reason && html` · ${oneLine(seen.record.decision.reason)}`}</p>`}
      <${Failed} error=${error} />
      ${link && request.metadata?.sessionId && html`<p><a href=${`#/chat/${encodeURIComponent(request.metadata.sessionId)}`}>The conversation</a></p>`}
    </article>`;
  }

  choices(seen) {
    const { mayDeny, mayApprove, maySession, isHigh, target } = this.allowed();
    const { denying, reason, typed } = this.state;
    return html`<div class="choices">
      ${seen.isCut && html`<p class="note">It is not shown whole here, so it can only be denied here.
        <code>ken approvals ${seen.record.request.id}</code> shows it.</p>`}
      ${isHigh && !seen.isCut && html`<label>The risk is high. Type <code>${target}</code> to approve:
        <input value=${typed ?? ""} autocomplete="off" spellcheck=${false} onInput=${event => this.setState({ typed: event.target.value })} /></label>`}
      ${denying ? html`<label>Why not? (the agent reads it)
          <input maxlength="2000" ref=${focused} value=${reason ?? ""}
            onInput=${event => this.setState({ reason: event.target.value })}
            onKeyDown=${event => event.key === "Enter" && this.decide(false)} /></label>
        <button type="button" class="danger" disabled=${!mayDeny} onClick=${() => this.decide(false)}>Deny</button>
        <button type="button" onClick=${() => this.setState({ denying: false }, () => this.refocus())}>Back</button>`
      : html`<button type="button" class="main" disabled=${!mayApprove} onClick=${() => this.decide(true)}>Approve once</button>
        <button type="button" disabled=${!maySession} onClick=${() => this.decide(true, "session")}>Approve for this session</button>
        <button type="button" class="danger" disabled=${!mayDeny} onClick=${() => this.setState({ denying: true })}>Deny …</button>`}
    </div>`;
  }
}
