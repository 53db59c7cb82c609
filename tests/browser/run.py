#!/usr/bin/env python3
"""Headless Chromium against `strandline events serve`: whatever happens to the server, the connection or
the page, the page ends with exactly the published sequence, and where that could not be replayed it says so.

    tests/browser/run.py PROGRAM [SCENARIO...]

Chromium is driven over its pipe; nothing is downloaded. Screenshots go to target/browser/.
"""

import atexit
import base64
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

GIVE_UP = 30
SHOTS = pathlib.Path(__file__).resolve().parents[2] / "target" / "browser"

PAGE = """
(async (transport, stateUrl) => {
  document.body.innerHTML = '<h1>' + transport + '</h1><p id="told"></p><p id="items"></p>';
  const page = window.page = { items: [], raw: [], syncs: [], state: '', hole: false };
  const paint = () => {
    document.getElementById('items').textContent = page.items.join(' ');
    document.getElementById('told').textContent =
      page.state + (page.syncs.length ? '; synchronised anew: ' + page.syncs.join(', ') : '');
  };
  const take = (text) => {
    const n = Number(text);
    page.raw.push(n);
    const last = page.items.length;
    // A state may be newer than its position: what it already holds comes again.
    if (n > last) { if (n !== last + 1) page.hole = true; page.items.push(n); }
    paint();
  };
  const load = async ({ reason }) => {
    if (reason !== 'first') page.syncs.push(reason);
    paint();
    page.items = await (await fetch(stateUrl, { cache: 'no-store' })).json();
    paint();
  };
  if (transport !== 'plain') {
    const { subscribe } = await import('/strandline.js');
    page.stream = subscribe({
      topics: ['t', 'quiet'], transport, load,
      onEvent: (event) => take(event.data),
      onState: (state) => { page.state = state; paint(); },
    });
  } else {
    const { id } = await (await fetch('/position?topics=t,quiet')).json();
    await load({ reason: 'first' });
    let work = Promise.resolve();
    const source = new EventSource('/events?topics=t,quiet&envelope=json&last_event_id=' + id);
    source.onmessage = (event) => { work = work.then(() => take(JSON.parse(event.data).data)); };
    source.addEventListener('sync_required', (event) => {
      work = work.then(() => load(JSON.parse(event.data)));
    });
    source.addEventListener('opened', () => { page.state = 'live'; paint(); });
    source.onerror = () => { page.state = source.readyState === 2 ? 'stopped' : 'connecting'; paint(); };
  }
})
"""


def wait(what, check):
    end = time.monotonic() + GIVE_UP
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise SystemExit(f"expected {what} within {GIVE_UP} s, found none")
        time.sleep(0.02)


class Program:
    """`events serve`."""

    def __init__(self, program, *args):
        self.command = [program, "--json", "events", "serve", "--listen", "127.0.0.1:0", *args]
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        # Whatever fails, nothing of ours outlives this script.
        atexit.register(self.child.kill)
        self.port = int(json.loads(self.child.stdout.readline())["http"].rsplit(":", 1)[1])

    def kill(self, with_signal=signal.SIGKILL):
        self.child.send_signal(with_signal)
        self.child.wait()

    def publish(self, n):
        """An uncertain end, or a server that is not back yet, is answered by a repeat: one token, one event."""
        url = f"http://127.0.0.1:{self.port}/publish?topic=t"
        headers = {"Idempotency-Key": f"n{n}"}

        def published():
            try:
                request = urllib.request.Request(url, data=str(n).encode(), headers=headers)
                with urllib.request.urlopen(request, timeout=GIVE_UP) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code in (503, 504):
                    return None
                raise

        wait("a publish that is in", published)


class Redis:
    def __init__(self):
        self.home = tempfile.mkdtemp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        self.child = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--save", "", "--dir", self.home, "--loglevel", "warning"],
            stdout=subprocess.DEVNULL,
        )
        atexit.register(self.child.kill)
        wait("a Redis server", self.answers)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def kill(self):
        self.child.kill()
        self.child.wait()


class Proxy:
    """Stands between the browser and the server; its connections can be cut."""

    def __init__(self):
        self.target = None
        self.open = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.target or 1))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.open |= {client, server}
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self.lock:
            self.open -= {source, sink}

    def cut(self):
        with self.lock:
            cut = list(self.open)
        for end in cut:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Published:
    """Everything published so far, which is the state that a page fetches."""

    def __init__(self):
        self.items = []
        items = self.items

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(items).encode()
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def publish(self, server, count):
        for _ in range(count):
            n = len(self.items) + 1
            # The state first: whoever is given the event finds it there.
            self.items.append(n)
            server.publish(n)


class Browser:
    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise SystemExit("expected chromium, found none: install the package of that name")
        self.home = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.from_, from_write = os.pipe()

        def inherit():
            # High numbers first, so that neither overwrites the other.
            a, b = os.dup(to_read), os.dup(from_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        flags = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage
            --disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"""
        self.child = subprocess.Popen(
            [program, *flags.split(), f"--user-data-dir={self.home}", "about:blank"],
            preexec_fn=inherit, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest = 0, b""

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                data = os.read(self.from_, 1 << 20)
                if not data:
                    raise SystemExit("expected Chromium to answer, found it ended")
                self.rest += data
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def page(self, url):
        target = self.call("Target.createTarget", url=url)["targetId"]
        return Page(self, target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def end(self):
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        wait("a loaded page", lambda: self.value("location.protocol + document.readyState") == "http:complete")

    def value(self, expression):
        answer = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"the page failed: {json.dumps(answer['exceptionDetails'])[:500]}")
        return answer["result"].get("value")

    def shot(self, name):
        SHOTS.mkdir(parents=True, exist_ok=True)
        data = self.browser.call("Page.captureScreenshot", self.session, format="png")["data"]
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(data))

    def freeze(self, frozen):
        self.browser.call("Page.setWebLifecycleState", self.session, state="frozen" if frozen else "active")

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


class Run:
    """One page on one transport."""

    def __init__(self, browser, server, transport):
        self.server, self.transport = server, transport
        self.published, self.proxy = Published(), Proxy()
        self.proxy.target = server.port
        self.page = browser.page(f"http://127.0.0.1:{self.proxy.port}/")
        self.page.value(f"{PAGE}({json.dumps(transport)}, {json.dumps(self.published.url)})")
        self.live()

    def live(self):
        wait("a live page", lambda: self.page.value("page.state") == "live")

    def publish(self, count, server=None):
        self.published.publish(server or self.server, count)

    def ends_right(self, name, syncs):
        """The page has exactly what was published. `syncs`: it must, must not (or may: None) have been told
        to synchronise. Where it was not told, each event came exactly once."""
        items = self.published.items
        wait(f"{name}/{self.transport}: all {len(items)} items", lambda: self.page.value("page.items.length") >= len(items))
        page = json.loads(self.page.value("JSON.stringify({...page, stream: undefined})"))
        self.page.shot(f"{name}-{self.transport}")
        problem = None
        if page["items"] != items:
            problem = f"items {page['items']}"
        elif page["hole"]:
            problem = "a hole that was not told"
        elif syncs is not None and bool(page["syncs"]) != syncs:
            problem = f"synchronised: {page['syncs']}"
        elif not page["syncs"] and page["raw"] != items:
            problem = f"events came as {page['raw']}"
        if problem:
            raise SystemExit(f"{name}/{self.transport}: expected {items}, found {problem}")
        print(f"{name}/{self.transport}: {len(items)} items, synchronised anew: {page['syncs'] or 'never'}", flush=True)
        self.page.close()


def cut(browser, program, transport):
    server = Program(program)
    run = Run(browser, server, transport)
    run.publish(5)
    run.proxy.target = None
    run.proxy.cut()
    run.publish(5)
    run.proxy.target = server.port
    run.publish(5)
    run.ends_right("cut", False)
    server.kill()


def long_cut(browser, program, transport):
    server = Program(program, "--buffer-events-max", "8")
    run = Run(browser, server, transport)
    run.publish(3)
    run.proxy.target = None
    run.proxy.cut()
    run.publish(20)
    run.proxy.target = server.port
    wait("to be told", lambda: run.page.value("page.syncs.length") > 0)
    run.live()
    run.publish(3)
    run.ends_right("long-cut", True)
    server.kill()


def restart(browser, program, transport):
    server = Program(program)
    run = Run(browser, server, transport)
    run.publish(5)
    wait("what was published", lambda: run.page.value("page.items.length") == 5)
    server.kill()
    server.start()
    # While nobody is connected, and as many as before: the positions look alike.
    run.publish(5)
    run.proxy.target = server.port
    wait("to be told", lambda: run.page.value("page.syncs.length") > 0)
    run.publish(3)
    run.ends_right("restart", True)
    server.kill(signal.SIGTERM)


def asleep(browser, program, transport):
    server = Program(program)
    run = Run(browser, server, transport)
    run.publish(5)
    run.page.freeze(True)
    run.publish(20)
    run.proxy.cut()
    run.publish(20)
    run.page.freeze(False)
    run.publish(3)
    run.ends_right("asleep", False)
    server.kill()


def two_instances(browser, program, transport):
    redis = Redis()
    args = ["--redis", f"redis://127.0.0.1:{redis.port}/"]
    one, two = Program(program, *args), Program(program, *args)
    run = Run(browser, one, transport)
    run.publish(5, two)
    wait("what was published", lambda: run.page.value("page.items.length") == 5)
    run.proxy.target = two.port
    run.proxy.cut()
    run.live()
    run.publish(5, one)
    wait("what was published", lambda: run.page.value("page.items.length") == 10)
    redis.kill()
    redis.start()
    wait("to be told", lambda: run.page.value("page.syncs.length") > 0)
    run.live()
    run.publish(5, one)
    run.ends_right("two-instances", True)
    for child in (one, two, redis):
        child.kill()


def status_page(browser, program):
    server = Program(program, "--buffer-events-max", "8")
    published = Published()
    published.publish(server, 20)
    page = browser.page(f"http://127.0.0.1:{server.port}/")
    shown = lambda: page.value("document.getElementById('topics').innerText.includes('20')")
    wait("the topic on the status page", shown)
    published.publish(server, 1)
    wait("the next event on the status page", lambda: page.value("document.getElementById('topics').innerText.includes('21')"))
    foreign = page.value(
        "performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith(location.origin)).join()")
    if foreign:
        raise SystemExit(f"expected a page that asks only its own server, found {foreign}")
    page.shot("status")
    print("status: shows what happens, asks nobody else", flush=True)
    page.close()
    server.kill()


def client(browser):
    """The cases of client.js: the client alone, before answers that the server gives seldom."""
    here = pathlib.Path(__file__).resolve().parent
    files = {
        "/": b"<!doctype html>",
        "/client.js": (here / "client.js").read_bytes(),
        "/strandline.js": (here.parents[1] / "adapters/http/client/strandline.js").read_bytes(),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.page(f"http://127.0.0.1:{server.server_address[1]}/")
    for name in page.value("import('/client.js').then(({ cases }) => Object.keys(cases))"):
        page.value(f"""void import('/client.js').then(({{ cases }}) => cases.{name}())
            .then(() => 'passed', (error) => String(error.stack)).then((end) => {{ window.{name} = end; }})""")
        end = wait(f"an end of the client's case {name}", lambda: page.value(f"window.{name}"))
        if end != "passed":
            raise SystemExit(f"client: {name}: {end}")
        print(f"client: {name}", flush=True)
    page.close()


SCENARIOS = {"cut": cut, "long-cut": long_cut, "restart": restart, "asleep": asleep, "two-instances": two_instances}


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    program, names = sys.argv[1], sys.argv[2:] or ["client", "status", *SCENARIOS]
    browser = Browser()
    try:
        for name in names:
            if name == "client":
                client(browser)
                continue
            if name == "status":
                status_page(browser, program)
                continue
            for transport in ("plain", "eventsource", "fetch"):
                SCENARIOS[name](browser, program, transport)
    finally:
        browser.end()


if __name__ == "__main__":
    main()
