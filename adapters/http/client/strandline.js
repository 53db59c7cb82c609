// The client of Strandline's live topics for browsers: no framework, no dependencies.
//
// A page asks for its position first, then fetches its state, then goes on from that position. What it
// missed meanwhile, or while it was disconnected or asleep, is replayed; where that cannot be vouched for
// it is told to synchronise, and is never left believing that it is current.

const RETRY_MS = 1000;
const RETRY_MS_MAX = 30000;
const SYNC_JITTER_MS = 500;
// The server sends a comment every 15 seconds. Only fetch can see it.
const SILENCE_MS_MAX = 45000;

/** Follows topics. See `strandline.d.ts` for the options. */
export function subscribe(options) {
  return new Subscription(options);
}

/** Publishes. Repeats with the same token are one publish. */
export async function publish(url, topic, data, { kind = "", token, headers = {}, credentials } = {}) {
  const query = new URLSearchParams({ topic, kind });
  const sent = { ...headers };
  if (token !== undefined) sent["Idempotency-Key"] = token;
  const response = await fetch(`${base(url)}/publish?${query}`, {
    method: "POST", body: data, headers: sent, credentials,
  });
  if (!response.ok) throw await failure(response);
  return json(response);
}

/** Parses `text/event-stream` in pieces that end anywhere. `id` stays as it is while no frame names one. */
export class Parser {
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.rest = "";
    this.begun = false;
    this.frame = { data: [], event: "", id: undefined, retry: undefined };
  }

  push(text) {
    if (!this.begun && text !== "") {
      this.begun = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    this.rest += text;
    let start = 0;
    for (;;) {
      let end = start;
      while (end < this.rest.length && this.rest[end] !== "\n" && this.rest[end] !== "\r") end++;
      if (end === this.rest.length) break;
      // The line feed of a pair may come with the next piece.
      if (this.rest[end] === "\r" && end + 1 === this.rest.length) break;
      const line = this.rest.slice(start, end);
      start = end + (this.rest[end] === "\r" && this.rest[end + 1] === "\n" ? 2 : 1);
      this.line(line);
    }
    this.rest = this.rest.slice(start);
  }

  line(line) {
    const frame = this.frame;
    if (line === "") {
      this.frame = { data: [], event: "", id: undefined, retry: undefined };
      this.onFrame({ ...frame, data: frame.data.length > 0 ? frame.data.join("\n") : undefined });
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") frame.data.push(value);
    else if (field === "event") frame.event = value;
    else if (field === "id" && !value.includes("\0")) frame.id = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) frame.retry = Number(value);
  }
}

class Subscription {
  constructor(options) {
    const { url = "", topics, transport = "eventsource", load, onEvent } = options;
    if (!Array.isArray(topics) || topics.length < 1 || topics.length > 32) {
      throw new TypeError("expected 1 to 32 topics");
    }
    if (typeof onEvent !== "function") throw new TypeError("expected onEvent");
    this.options = { ...options, url: base(url), transport, load };
    this.id = options.id ?? "";
    this.retryMs = RETRY_MS;
    this.failures = 0;
    this.closed = false;
    this.state = "";
    // Events are handed over one after the other, and none while a state is loaded.
    this.work = Promise.resolve();
    this.generation = 0;
    this.abort = new AbortController();
    // A page that was asleep for long may hold a connection that is dead without anybody having noticed.
    this.wake = () => {
      if (document.visibilityState !== "visible") this.hiddenAt = Date.now();
      else if (Date.now() - this.hiddenAt > SILENCE_MS_MAX) this.nudge?.();
    };
    this.hiddenAt = Date.now();
    if (typeof document !== "undefined") document.addEventListener("visibilitychange", this.wake);
    this.become("connecting");
    this.run();
  }

  /** Ends it. Nothing is called afterwards. */
  close() {
    if (this.closed) return;
    this.become("closed");
    this.closed = true;
    this.abort.abort();
    this.nudge?.();
    if (typeof document !== "undefined") document.removeEventListener("visibilitychange", this.wake);
  }

  become(state, detail) {
    if (this.closed || this.state === state) return;
    this.state = state;
    this.tell(this.options.onState, state, detail);
  }

  /** A callback that only hears of something cannot stop the stream by failing. */
  tell(callback, ...told) {
    if (this.closed) return;
    try {
      callback?.(...told);
    } catch (thrown) {
      console.error(thrown);
    }
  }

  async run() {
    while (!this.closed) {
      try {
        const over = this.id === "" && (await this.adopt({ reason: "first" })) === "over";
        if (this.closed) return;
        if (over) return this.finish("over");
        const ended = this.options.transport === "fetch" ? await this.byFetch() : await this.byEventSource();
        if (ended === "over") return this.finish("over");
      } catch (error) {
        if (this.closed) return;
        if (error.final) return this.finish("refused", error);
        this.tell(this.options.onError, error);
      }
      if (this.closed) return;
      // What was received counts before the next connection is asked to go on after it.
      await this.work;
      this.become("connecting");
      await this.pause();
    }
  }

  finish(state, detail) {
    this.become(state, detail);
    this.close();
  }

  /** Waits before the next attempt: longer after each failure, and never all clients together. */
  async pause() {
    const longest = Math.min(this.retryMs * 2 ** this.failures, RETRY_MS_MAX);
    this.failures = Math.min(this.failures + 1, 10);
    await this.sleep(longest / 2 + Math.random() * (longest / 2));
  }

  sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.nudge = () => {
        clearTimeout(timer);
        resolve();
      };
    }).finally(() => {
      this.nudge = undefined;
    });
  }

  /** Position first, then the state that goes with it: whatever happens between is replayed. */
  async adopt(detail) {
    const { url, topics, load } = this.options;
    const response = await this.fetch(`${url}/position?${topicsQuery(topics)}`);
    if (response.status === 204) return "over";
    const { id } = await json(response);
    if (typeof id !== "string" || id === "") throw new Error("expected a position, found none");
    if (this.closed) return "closed";
    await load?.({ id, ...detail });
    this.id = id;
    return "adopted";
  }

  async fetch(url, init = {}) {
    const { headers, credentials } = this.options;
    const response = await fetch(url, {
      cache: "no-store", credentials, signal: this.abort.signal, ...init, headers: { ...headers, ...init.headers },
    });
    if (response.ok || response.status === 409 || response.status === 410) return response;
    const passes = response.status === 408 || response.status === 429 || response.status >= 500;
    throw Object.assign(await failure(response), { final: !passes });
  }

  /** A connection begins. What comes of an earlier one no longer counts. */
  begin() {
    this.joined = new Set();
    return ++this.generation;
  }

  streamUrl(extra) {
    const query = topicsQuery(this.options.topics);
    query.set("envelope", "json");
    if (this.id !== "") query.set("last_event_id", this.id);
    for (const [name, value] of Object.entries(extra)) query.set(name, value);
    return `${this.options.url}/events?${query}`;
  }

  /** One connection. The browser's own reconnecting is not used: it knows neither our waits nor `load`. */
  byEventSource() {
    const generation = this.begin();
    return new Promise((resolve) => {
      const source = new EventSource(this.streamUrl({}), { withCredentials: this.options.credentials === "include" });
      const end = (how) => {
        source.close();
        this.abort.signal.removeEventListener("abort", onAbort);
        this.nudge = undefined;
        resolve(how);
      };
      const onAbort = () => end("closed");
      this.abort.signal.addEventListener("abort", onAbort);
      this.nudge = () => end("asleep");
      const on = (name) => (event) => this.receive(generation, name, event.data, event.lastEventId, end);
      source.addEventListener("message", on("message"));
      for (const name of ["opened", "gap", "sync_required"]) source.addEventListener(name, on(name));
      source.onerror = async () => {
        // An answer that is no stream says nothing here; the same question by fetch does.
        if (source.readyState === EventSource.CLOSED) return end(await this.why());
        end("lost");
      };
    });
  }

  async why() {
    try {
      const response = await fetch(this.streamUrl({ client: "fetch" }), {
        cache: "no-store", credentials: this.options.credentials, signal: this.abort.signal,
      });
      response.body?.cancel();
      if (response.status === 204) return "over";
      if (response.status >= 400 && response.status < 500 && ![408, 409, 410, 429].includes(response.status)) {
        this.finish("refused", new Error(`the status ${response.status}`));
      }
    } catch {
      // Nobody answers: it is asked again.
    }
    return "lost";
  }

  async byFetch() {
    const generation = this.begin();
    const attempt = new AbortController();
    const onAbort = () => attempt.abort();
    this.abort.signal.addEventListener("abort", onAbort);
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => attempt.abort(), SILENCE_MS_MAX);
    };
    try {
      heard();
      this.nudge = () => attempt.abort();
      const headers = { Accept: "text/event-stream, application/json" };
      const response = await this.fetch(this.streamUrl({ client: "fetch" }), { headers, signal: attempt.signal });
      if (response.status === 204) return "over";
      if (response.status !== 200) return await this.refused(await json(response));
      const parser = new Parser((frame) => {
        if (frame.retry !== undefined) this.retryMs = frame.retry;
        if (frame.id) this.pending = frame.id;
        if (frame.data !== undefined) {
          this.receive(generation, frame.event || "message", frame.data, this.pending, onAbort);
        } else if (frame.id) {
          this.move(generation, frame.id);
        }
      });
      this.pending = this.id;
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return "ended";
        heard();
        parser.push(decoder.decode(value, { stream: true }));
      }
    } catch (error) {
      if (attempt.signal.aborted) return "lost";
      throw error;
    } finally {
      clearTimeout(silence);
      this.nudge = undefined;
      this.abort.signal.removeEventListener("abort", onAbort);
    }
  }

  /** The status said that the resume is refused. */
  async refused(answer) {
    const reasons = (answer.topics ?? []).filter((topic) => topic.reason).map(({ topic, reason }) => ({ topic, reason }));
    // Without a position the old one stays, and is refused again: nothing is forgotten.
    if (typeof answer.id !== "string" || answer.id === "") throw new Error(`no position yet: ${reasons[0]?.reason}`);
    for (const { topic, reason } of reasons) {
      if (!this.closed) await this.synchronise({ topic, reason, id: answer.id });
    }
    this.id = answer.id;
    this.failures = 0;
    return "refused";
  }

  receive(generation, name, data, id, end) {
    this.work = this.work.then(async () => {
      if (this.closed || generation !== this.generation) return;
      try {
        await this.handle(name, JSON.parse(data), id);
        if (id) this.id = id;
        this.failures = 0;
        if (this.joined.size === this.options.topics.length) this.become("live");
      } catch (error) {
        // What was not taken is asked for again: the position stays before it.
        this.generation++;
        end("failed");
        this.tell(this.options.onError, error);
      }
    });
  }

  move(generation, id) {
    this.work = this.work.then(() => {
      if (!this.closed && generation === this.generation) this.id = id;
    });
  }

  async handle(name, value, id) {
    const topic = value.topic ?? this.options.topics[0];
    if (name === "opened" || name === "sync_required") this.joined.add(topic);
    if (name === "opened") return this.options.onOpen?.({ topic, resumed: value.resumed, id });
    if (name === "gap") return this.options.onGap?.({ topic, after: value.after, through: value.through });
    if (name === "sync_required") return this.synchronise({ topic, reason: value.reason, id });
    const bytes = value.base64 === undefined ? undefined : fromBase64(value.base64);
    const event = { topic, kind: value.kind, at: value.at_ms, data: value.data ?? "", bytes, id };
    return this.options.onEvent(event);
  }

  /** The state is fetched anew, at or after the position that came with the notice. */
  async synchronise(detail) {
    this.become("syncing", detail);
    await this.options.onSyncRequired?.(detail);
    if (this.closed || !this.options.load) return;
    await new Promise((resolve) => setTimeout(resolve, Math.random() * SYNC_JITTER_MS));
    if (!this.closed) await this.options.load(detail);
  }
}

/** What an answer says. A proxy between may have answered something else. */
async function json(response) {
  try {
    return await response.json();
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    const error = new Error(`expected an answer in JSON, found none with the status ${response.status}`, { cause });
    throw Object.assign(error, { status: response.status });
  }
}

/** Why a request was refused, by whoever refused it. */
async function failure(response) {
  const answer = await response.json().catch(() => ({}));
  const error = new Error(answer?.message ?? `expected an answer, found the status ${response.status}`);
  return Object.assign(error, { code: answer?.error, status: response.status });
}

function base(url) {
  return url.replace(/\/+$/, "");
}

function topicsQuery(topics) {
  return new URLSearchParams(topics.map((topic) => ["topic", topic]));
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}
