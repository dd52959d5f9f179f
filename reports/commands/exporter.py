"""``bbrscope exporter``: what this host's BBR flows do, for a Prometheus server to fetch."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ..live.live_options import LiveRequest, live_options
from ..options import gather
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.live.live_session import LiveSession
    from ..live.live_metrics import LiveMetrics

TICK_S = 0.2
LOOK_S = 1.0
# A request that takes so long is hung up on, and the oldest where there are so many: each holds a
# thread and a file meanwhile, of which the recorder's own tools need some.
PATIENCE_S = 10.0
MOST_REQUESTS = 32

Request = socket.socket | tuple[bytes, socket.socket]
Address = tuple[str, int] | str


@click.command()
@live_options
@click.option(
    "--listen", default="127.0.0.1:9469", show_default=True, help="ADDRESS:PORT to serve."
)
@click.option("-d", "--duration", type=click.FloatRange(min=0.1), help="End after so many seconds.")
@gather(LiveRequest)
def command(request: LiveRequest, listen: str, duration: float | None) -> None:
    """Serve what this host's BBR flows do as OpenMetrics, at http://ADDRESS:PORT/metrics.

    Histograms of RTT, delivery rate and loss by phase and by what limits, and counts of decisions;
    never a label per connection. Nothing is recorded.

    \b
    Examples:
      sudo bbrscope exporter
      sudo bbrscope exporter --listen 0.0.0.0:9469 --port 443
      curl -s http://127.0.0.1:9469/metrics | grep decisions
    """
    from ...analyze.live.live_session import LiveSession
    from ...collect.record.recording import ended_by_signals
    from ..live.live_metrics import LiveMetrics

    metrics = LiveMetrics()
    server = serve(listen, metrics)
    session = LiveSession(request.plan(), lambda text: say(text, err=True))
    with ended_by_signals(session):
        try:
            session.start()
            say(f"serving http://{listen}/metrics", err=True)
            _watch(session, metrics, time.monotonic() + (duration or float("inf")))
        finally:
            session.stop()
            server.shutdown()
    session.require_attached()
    say(f"ended: {session.ended or 'duration'}", err=True)


def _watch(session: LiveSession, metrics: LiveMetrics, until: float) -> None:
    """Count until something ends it."""
    looked = 0.0
    while not session.ended and time.monotonic() < until:
        metrics.follow(session)
        if time.monotonic() - looked >= LOOK_S:
            looked = time.monotonic()
            watching = session.watching
            metrics.update_flows(session.flows.flows, watching.lost + watching.rows.dropped)
        time.sleep(TICK_S)


def _handler(metrics: LiveMetrics) -> type[BaseHTTPRequestHandler]:
    """The class that answers each request of a server of these metrics."""
    from ..live.live_metrics import TYPE

    class Handler(BaseHTTPRequestHandler):
        """Answers /metrics only."""

        timeout = PATIENCE_S

        def do_GET(self) -> None:
            """Send the metrics."""
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            """Send what comes before the metrics."""
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each request."""

    return Handler


class MetricsServer(ThreadingHTTPServer):
    """Listens at an IPv4 or IPv6 address; who hangs up before the answer is no error."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # Requests under way and when they came [s of time.monotonic()], oldest first.
        self._open: dict[Request, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Request, client_address: Address) -> None:
        """Answer in a thread of its own; of too many the oldest gives way."""
        with self._lock:
            if len(self._open) >= MOST_REQUESTS:
                self._hang_up(next(iter(self._open)))
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        """Forget a request that was answered."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Hang up on those that take too long, however often a byte of them comes."""
        with self._lock:
            late = time.monotonic() - PATIENCE_S
            for request in [one for one, began in self._open.items() if began < late]:
                self._hang_up(request)

    def _hang_up(self, request: Request) -> None:
        """Wake the thread that waits for a request: it ends."""
        del self._open[request]
        if isinstance(request, socket.socket):
            with contextlib.suppress(OSError):  # it has just been answered, or reset
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Print what went wrong, unless the client hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(listen: str, metrics: LiveMetrics) -> ThreadingHTTPServer:
    """Return a server of metrics that listens already, in threads of its own.

    Args:
        listen: ADDRESS:PORT.

    Raises:
        BbrscopeError: that is no address and port, or nothing can listen there (port in use).
    """
    match = re.fullmatch(r"\[?([0-9A-Za-z:.-]+?)\]?:(\d{1,5})", listen)
    if match is None or int(match[2]) > 65535:
        raise BbrscopeError(f"--listen {listen!r} is no address and port", "like 127.0.0.1:9469")

    try:
        server = MetricsServer((match[1], int(match[2])), _handler(metrics))
    except OSError as error:
        raise BbrscopeError(
            f"cannot listen at {listen}: {error.strerror}", "choose another --listen"
        ) from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
