"""The exporter's server before clients that mean no good: many, slow, or asking otherwise."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from bbrscope.reports.commands import exporter
from bbrscope.reports.live.live_metrics import LiveMetrics

METRICS = cast("LiveMetrics", SimpleNamespace(text=lambda: "# EOF\n"))
Place = tuple[str, int]


@pytest.fixture
def place() -> Iterator[Place]:
    server = exporter.serve("127.0.0.1:0", METRICS)
    yield "127.0.0.1", int(server.server_address[1])
    server.shutdown()
    server.server_close()


def asked(place: Place, method: str) -> tuple[int, bytes, str | None]:
    """Status, body, and length of an answer."""
    connection = http.client.HTTPConnection(*place, timeout=30)
    try:
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Content-Length"]
    finally:
        connection.close()


def test_what_is_asked_for_without_its_body_is_answered_so(place: Place) -> None:
    assert asked(place, "GET") == (200, b"# EOF\n", "6")
    assert asked(place, "HEAD") == (200, b"", "6")


def test_many_that_never_end_their_request_neither_hold_more_than_a_few_nor_keep_others_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "MOST_REQUESTS", 4)
    before = threading.active_count()
    hanging = [socket.create_connection(place, timeout=30) for _ in range(20)]
    for client in hanging:
        send(client, b"GET /met")
    assert asked(place, "GET")[0] == 200
    for client in hanging[:15]:
        assert ended(client)
    deadline = time.monotonic() + 30
    while threading.active_count() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 4
    for client in hanging:
        client.close()


def test_a_request_of_which_a_byte_comes_from_time_to_time_is_hung_up_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes soon enough; the whole request does not."""
    monkeypatch.setattr(exporter, "PATIENCE_S", 1.0)
    with socket.create_connection(place, timeout=0.05) as client:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not ended(client):
            send(client, b"G")
        assert time.monotonic() < deadline


def send(client: socket.socket, data: bytes) -> None:
    """Send to who may have hung up already."""
    with contextlib.suppress(ConnectionError):
        client.sendall(data)


def ended(client: socket.socket) -> bool:
    """Whether the other end has hung up."""
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
