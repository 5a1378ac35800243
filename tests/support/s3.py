"""An S3 of our own on loopback, and a proxy in front of it that fails as real stores and networks do."""

import http.client
import logging
import threading
import time
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

REGION, ACCESS_KEY, SECRET_KEY = "us-east-1", "AKIA-planted-access-key", "planted/secret+key"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_ERROR = "<?xml version='1.0'?><Error><Code>{0}</Code><Message>{0} of the proxy</Message></Error>"


@contextmanager
def s3_server():
    """Start a server on a free port, yield its address and stop it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


def new_bucket(address):
    """Create a bucket and return its name."""
    name = f"lake-{uuid.uuid4().hex}"
    urlopen(Request(f"{address}/{name}", method="PUT")).close()
    return name


def all_objects(address, bucket):
    """Return the content of every object of a bucket by its key."""
    import boto3

    keys = {"aws_access_key_id": "reader", "aws_secret_access_key": "reader", "region_name": REGION}
    client = boto3.client("s3", endpoint_url=address, **keys)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    names = [found["Key"] for page in pages for found in page.get("Contents", ())]
    return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}


@dataclass(frozen=True)
class Fault:
    """What the proxy does with a request: refuse it, never answer it, lose the answer, or take a condition away."""

    status: int | None = None
    code: str = ""
    silent: bool = False
    lose_answer: bool = False
    unconditional: bool = False


INTERNAL_ERROR = Fault(500, "InternalError")
SLOW_DOWN = Fault(503, "SlowDown")
CONFLICT = Fault(409, "ConditionalRequestConflict")
NOT_IMPLEMENTED = Fault(501, "NotImplemented")
TIMEOUT = Fault(silent=True)
LOST_ANSWER = Fault(lose_answer=True)
UNCONDITIONAL = Fault(unconditional=True)


@dataclass
class Proxy:
    """A proxy on a free port. `fault` is asked for every request (method, path, headers); None passes it on."""

    server: str
    fault: object = staticmethod(lambda *_: None)
    latency: float = 0.0
    requests: list = field(default_factory=list)
    hit: list = field(default_factory=list)
    # Puts that wait for each other here, by the end of their path, and those that met.
    meetings: dict = field(default_factory=dict)
    met: list = field(default_factory=list)

    def once(self, fault, when):
        """Fail the first request for which `when(method, path)` holds."""
        left = [fault]
        self.fault = lambda method, path, _: left.pop() if left and when(method, path) else None

    def in_turn(self, faults, when=lambda *_: True):
        """Fail the next requests for which `when(method, path)` holds, by these faults one after the other."""
        left, lock = list(reversed(faults)), threading.Lock()

        def fault(method, path, _):
            with lock:
                return left.pop() if left and when(method, path) else None

        self.fault = fault

    def meet(self, name):
        """Let the first two puts of a name pass at the same moment: neither can know of the other."""
        self.meetings[name] = threading.Barrier(2, lambda: self.met.append(name), timeout=60)

    def rendezvous(self, path):
        """Wait for the other put of this path, if the two are to meet."""
        name = next((name for name in self.meetings if path.endswith(name)), None)
        if name is not None and self.meetings[name].wait() == 0:
            del self.meetings[name]

    def calm(self):
        """Pass everything on again."""
        self.fault = lambda *_: None
        self.hit.clear()
        self.meetings.clear()
        self.met.clear()


@contextmanager
def proxy(server):
    """Start a proxy in front of a server, yield it with its address, and stop it."""
    made, closing, writing = Proxy(server), threading.Event(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_request(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.requests.append((self.command, self.path))
            fault = made.fault(self.command, self.path, self.headers)
            if made.latency:
                time.sleep(made.latency)
            if fault:
                made.hit.append((self.command, self.path, fault))
            if fault and fault.silent:
                closing.wait(30)
                self.close_connection = True
                return
            if fault and fault.status:
                self.reply(fault.status, {"Content-Type": "application/xml"}, _ERROR.format(fault.code).encode())
                return
            if self.command == "PUT":
                made.rendezvous(self.path)
            if fault and fault.unconditional:
                del self.headers["If-None-Match"]
            # The server looks for an object and then creates it, in two steps; a real store does both in one.
            with writing if self.headers["If-None-Match"] else nullcontext():
                status, headers, content = self.forward(body)
            if fault and fault.lose_answer:
                self.close_connection = True
                return
            self.reply(status, headers, content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_request  # noqa: N815

        def forward(self, body):
            connection = http.client.HTTPConnection(urlsplit(made.server).netloc, timeout=60)
            try:
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
                connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

        def reply(self, status, headers, content):
            self.send_response(status)
            length = next((value for name, value in headers.items() if name.lower() == "content-length"), None)
            for name, value in headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            # The answer to HEAD has the length of what is not sent.
            self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_):
            """A client that gave up is what the proxy is for."""

    front = Server(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{front.server_port}"
    thread = threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        closing.set()
        front.shutdown()
        front.server_close()
        thread.join()
