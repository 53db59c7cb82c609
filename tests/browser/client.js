// The client by itself, before answers that a server gives seldom. Each case ends, or is given up by who runs it.

import { publish, subscribe } from "/strandline.js";

const position = () => new Response(JSON.stringify({ id: "first" }));

/** A stream that says this, and stays open until it is given up. */
function stream(text, signal) {
  const body = new ReadableStream({
    start(to) {
      to.enqueue(new TextEncoder().encode(text));
      signal.addEventListener("abort", () => to.error(new DOMException("given up", "AbortError")));
    },
  });
  return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
}

const frame = (name, id, value) => `event: ${name}\nid: ${id}\ndata: ${JSON.stringify(value)}\n\n`;
const opened = frame("opened", "first", { topic: "t", resumed: true });

/** Follows "t" by fetch. `answer(path, signal, n)` is given the number of requests to that path so far. */
function follow(answer, options) {
  const asked = {};
  window.fetch = async (url, { signal }) => {
    const path = new URL(url, location.href).pathname;
    asked[path] = (asked[path] ?? 0) + 1;
    return answer(path, signal, asked[path]);
  };
  return { asked, stream: subscribe({ topics: ["t"], transport: "fetch", onEvent: () => {}, ...options }) };
}

const until = async (check) => {
  while (!check()) await new Promise((resolve) => setTimeout(resolve, 5));
};

function equal(found, expected) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`expected ${b}, found ${a}`);
}

const page = (status) => new Response(status === 204 ? null : "<html>a proxy</html>", { status });

export const cases = {
  async a_204_to_the_first_question_ends_it() {
    const states = [];
    const { asked } = follow(() => page(204), { onState: (state) => states.push(state) });
    await until(() => states.includes("closed"));
    equal([states, asked], [["connecting", "over", "closed"], { "/position": 1 }]);
  },

  async a_page_of_a_proxy_is_tried_again_and_told_by_its_status() {
    const errors = [];
    const answer = (path, signal, n) => (path === "/position" ? (n === 1 ? page(200) : position()) : stream(opened, signal));
    const { stream: live } = follow(answer, { onError: (error) => errors.push([error.name, error.status]) });
    await until(() => live.state === "live");
    live.close();
    equal(errors, [["Error", 200]]);
  },

  async a_publish_that_a_proxy_answered_fails_by_its_status() {
    const found = [];
    for (const status of [200, 204, 403, 502]) {
      window.fetch = async () => page(status);
      await publish("", "t", "x").catch((error) => found.push([error.name, error.status, error.code]));
    }
    equal(found, [200, 204, 403, 502].map((status) => ["Error", status, undefined]));
  },

  async nothing_is_called_after_a_close_while_it_synchronises() {
    const called = [];
    let closed = false;
    const note = (name) => () => { if (closed) called.push(name); };
    const answer = (path, signal) =>
      path === "/position" ? position() : stream(opened + frame("sync_required", "second", { topic: "t", reason: "evicted" }), signal);
    const { stream: live } = follow(answer, {
      load: note("load"), onState: note("state"), onError: note("error"),
      onSyncRequired: () => { live.close(); closed = true; },
    });
    await until(() => closed);
    // Longer than it waits before it loads.
    await new Promise((resolve) => setTimeout(resolve, 600));
    equal(called, []);
  },

  async nothing_is_called_after_a_close_while_a_refusal_is_worked_off() {
    const synced = [];
    const topics = ["t", "u"].map((topic) => ({ topic, reason: "evicted" }));
    const refusal = () => new Response(JSON.stringify({ id: "second", topics }), { status: 409 });
    const { stream: live } = follow((path) => (path === "/position" ? position() : refusal()), {
      load: ({ reason }) => synced.push(reason),
      onSyncRequired: ({ topic }) => { synced.push(topic); live.close(); },
    });
    await until(() => live.state === "closed");
    await new Promise((resolve) => setTimeout(resolve, 600));
    equal(synced, ["first", "t"]);
  },

  async callbacks_that_throw_do_not_stop_it() {
    const taken = [];
    const event = frame("message", "second", { topic: "t", kind: "", at_ms: 0, data: "one" });
    const answer = (path, signal) => (path === "/position" ? position() : stream(opened + event, signal));
    const fail = () => { throw new Error("a callback that fails"); };
    const { asked, stream: live } = follow(answer, {
      onState: fail, onError: fail,
      onEvent: ({ data, id }) => { taken.push(data); if (taken.length === 1) fail(); },
    });
    await until(() => live.id === "second");
    live.close();
    equal([taken, asked["/events"], live.state, live.closed], [["one", "one"], 2, "closed", true]);
  },
};
