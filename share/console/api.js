// The public HTTP API of the gateway (ken-gateway(8)), as any program uses it: calls, and streams that go on after a break.

const KEPT = "ken.access";
const TRIES = 6;
/** The gateway sends a heartbeat every 15 s. */
const SILENCE_MS = 40_000;
/** An answer begins within this time: the slowest of the gateway take a minute. */
const ANSWER_MS = 90_000;
/** So many bytes of a body are sent within a millisecond, also over a slow connection. */
const BYTES_PER_MS = 20;
/** A browser has six connections to a host, over all of its windows. So many are for streams; the others are for requests. */
const STREAMS = 4;
/** A stream without a connection of its own is read to its end after each pause of this length. */
const GLANCE_MS = 2_000;
/** A log has no mark at its end, so that it is read for this long. */
const LOG_MS = 500;
/** No frame is longer than a page of events. */
const FRAME_CHARACTERS = 8 << 20;

export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error;
    super(typeof error === "string" ? error : error?.message ?? `The gateway answered ${status}.`);
    this.status = status;
    this.code = body?.code ?? error?.type ?? "";
    this.hint = body?.hint ?? error?.details ?? "";
  }

  /** Whether the caller has to come in first: by the link of `ken open`, or with the secret. */
  get needsAccess() {
    return this.status === 401 || /(no secret|none) is configured$/.test(this.message);
  }
}

/** The page is told here when a call is refused, so that it asks for access. */
export const access = { onRefused: () => {} };

// It is kept for this tab alone: other tabs, and later visitors of this browser, have to come in by themselves.
function credentials() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  if (kept?.token) return { authorization: `Bearer ${kept.token}` };
  return kept?.secret ? { "x-api-secret": kept.secret } : {};
}

export const keep = kept => sessionStorage.setItem(KEPT, JSON.stringify(kept));
export const forget = () => sessionStorage.removeItem(KEPT);

/** A key with which a request can be repeated without doing its work twice. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
}

/** Names the changes of a form by keys. A change that stays the same keeps its key, so that a click after a lost answer repeats it and begins nothing anew. */
export function keys() {
  let name, key;
  return what => {
    if (what !== name) [name, key] = [what, newKey()];
    return key;
  };
}

const pause = ms => new Promise(done => setTimeout(done, ms));

async function request(method, path, { body, key, headers, signal } = {}) {
  const text = body === undefined ? undefined : JSON.stringify(body), late = new AbortController();
  // A request can also wait for one of the connections of the browser, of which nothing else would tell.
  const timer = setTimeout(() => late.abort(new ApiError(0, { error: `The gateway has not answered for ${ANSWER_MS / 1000} s.` })),
    ANSWER_MS + (text?.length ?? 0) / BYTES_PER_MS);
  const response = await fetch(path, {
    method, signal: signal ? AbortSignal.any([signal, late.signal]) : late.signal, cache: "no-store", credentials: "omit", redirect: "error",
    headers: {
      ...credentials(), ...headers,
      ...(text !== undefined && { "content-type": "application/json" }), ...(key && { "idempotency-key": key }),
    },
    body: text,
  }).finally(() => clearTimeout(timer));
  if (response.ok || response.status === 304) return response;
  const error = new ApiError(response.status, await response.json().catch(() => null));
  if (error.needsAccess) access.onRefused(error);
  throw error;
}

/** Calls a route and returns its JSON. A gateway that is away is tried again; with a key, a change too. */
export function call(method, path, options = {}) {
  return patiently(method === "GET" || options.key, options.signal, async () => {
    const response = await request(method, path, options);
    return response.status === 204 ? null : response.json();
  });
}

/** Reads a route that has an ETag, again and again. Nothing is sent for what is known already. */
export function reader(path) {
  let etag, value;
  return () => patiently(true, undefined, async () => {
    const response = await request("GET", path, { headers: etag && { "if-none-match": etag } });
    if (response.status === 304) return value;
    value = await response.json();
    etag = response.headers.get("etag");
    return value;
  });
}

async function patiently(mayRepeat, signal, work) {
  for (let tried = 1; ; tried++) {
    try {
      return await work();
    } catch (error) {
      const isAway = error instanceof TypeError || error.status === 504 || (error.status === 503 && !error.needsAccess);
      if (!mayRepeat || !isAway || tried === TRIES || signal?.aborted) {
        throw error instanceof TypeError ? new ApiError(0, { error: "The gateway cannot be reached." }) : error;
      }
      await pause(250 * 2 ** tried);
    }
  }
}

/** Loads a module, by a function that imports it. A gateway that is away is tried again, as for any other request. */
export const load = work => patiently(true, undefined, work);

export const get = (path, options) => call("GET", path, options);
export const post = (path, body, options) => call("POST", path, { body, key: newKey(), ...options });

/** The text of a route, such as a whole diff. */
export async function text(path) {
  return (await request("GET", path)).text();
}

/** What a route answers, under an address for an element: by the address of the route an element would send no token. */
export async function objectUrl(path) {
  return URL.createObjectURL(await (await request("GET", path)).blob());
}

/** Saves what a route answers as a file. */
export async function save(path, name) {
  const link = document.createElement("a");
  link.href = await objectUrl(path);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function query(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Trades the code of `ken open` for a token. */
export async function comeIn(code) {
  const { token } = await call("POST", "/console/token", { body: { code } });
  keep({ token });
}

/**
 * Does work that reads a stream, and tells it whether it may keep its connection: while it holds one of the locks that all windows share. Plain
 * HTTP from another machine has no locks; there, the window in which a person works keeps its connections, and no other.
 */
async function withConnection(work) {
  if (!navigator.locks) return work(document.hasFocus());
  for (let number = 0; number < STREAMS; number++) {
    const isDone = await navigator.locks.request(`ken.stream.${number}`, { ifAvailable: true }, lock => lock && work(true).then(() => true));
    if (isDone) return;
  }
  return work(false);
}

/** Why a stream is read no further for now: the window is hidden or left, or the end of the stream was seen. */
const LEFT = "left", SEEN = "seen";

/**
 * Follows a stream from an offset, until `close` is called or the stream ends. One without offsets, a log, begins anew each time. After a break it goes on behind the last
 * complete frame, so that nothing is lost and nothing comes twice. While the page is hidden, it holds no connection, and while too many others
 * hold one, it only looks every now and then what has come.
 */
export class Follow {
  constructor(path, offset, { onEvents, onState = () => {}, onGone = () => {}, onOpen = () => {}, params = { live: "sse" } }) {
    Object.assign(this, { path, offset, onEvents, onState, onGone, onOpen, params, breaks: 0 });
    this.listening = new AbortController();
    const { signal } = this.listening, leave = () => this.stop?.abort(LEFT), wake = () => this.wake?.();
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : wake()), { signal });
    if (!navigator.locks) {
      addEventListener("blur", leave, { signal });
      addEventListener("focus", wake, { signal });
    }
    this.run();
  }

  close() {
    this.isClosed = true;
    this.listening.abort();
    this.stop?.abort();
    this.wake?.();
  }

  async run() {
    while (!this.isClosed) {
      if (document.hidden) {
        await this.rest();
        continue;
      }
      const stop = this.stop = new AbortController();
      try {
        await withConnection(stays => this.read(stop, stays));
      } catch (error) {
        if (this.isClosed || this.refused(error)) return;
      }
      const { reason } = stop.signal;
      if (this.isClosed || document.hidden || reason === LEFT) continue;
      if (reason !== SEEN) this.onState("broken");
      await this.rest(reason === SEEN ? GLANCE_MS : Math.min(5_000, 200 * 2 ** this.breaks++) * (0.7 + Math.random() * 0.6));
    }
  }

  /** Waits for a time, or until the page is looked at. */
  rest(ms) {
    const woken = new Promise(wake => { this.wake = wake; });
    return ms === undefined ? woken : Promise.race([pause(ms), woken]);
  }

  /** Whether an error is one that another attempt does not mend. */
  refused(error) {
    if (error.status === 410) this.onGone(error);
    return error.status === 410 || error.status === 404 || error.needsAccess || error.status === 400;
  }

  async read(stop, stays) {
    this.isAtEnd = false;
    const response = await request("GET", `${this.path}${query({ offset: this.offset, ...this.params })}`, { signal: stop.signal });
    this.onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const log = this.offset === undefined && !stays && setTimeout(() => stop.abort(SEEN), LOG_MS);
    let rest = "", silence;
    try {
      for (;;) {
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE_MS);
        const { value, done } = await reader.read();
        if (done) return;
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        if (rest.length > FRAME_CHARACTERS) throw new Error("a frame of the stream is too long");
        frames.forEach(frame => this.take(frame));
        if (this.isAtEnd && !stays) stop.abort(SEEN);
      }
    } finally {
      clearTimeout(silence);
      clearTimeout(log);
      stop.abort();
    }
  }

  take(frame) {
    const fields = { data: "" };
    for (const line of frame.split("\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) {
        const name = line.slice(0, colon);
        fields[name] = (name === "data" ? fields.data : "") + line.slice(colon + 1).replace(/^ /, "");
      }
    }
    if (!fields.data || this.isClosed) return;
    const data = JSON.parse(fields.data);
    if (fields.event === "control") {
      this.offset = data.streamNextOffset ?? this.offset;
      this.isAtEnd = Boolean(data.upToDate);
      this.isClosed ||= Boolean(data.streamClosed);
    } else {
      this.offset = fields.id ?? this.offset;
      this.onEvents(data);
    }
    this.breaks = 0;
    this.onState("live");
  }
}
