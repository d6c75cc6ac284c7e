"""The HTTP side: answers on one connection, limits, errors as JSON, and an end that waits for requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time

import pytest

from ps_trainer.errors import UsageError
from ps_trainer.inference.http_server import ApiServer, RequestLimits
from ps_trainer.inference.rest_api import Response


class Echo:
    """Answers with the method and the length of the body; the path /wait waits, /fail fails, /surrogate is no text."""

    def __init__(self):
        self.reached, self.released = threading.Event(), threading.Event()

    def answer(self, method, path, body):
        if path == "/wait":
            self.reached.set()
            self.released.wait(30)
        if path == "/fail":
            raise RuntimeError("a defect")
        if path == "/surrogate":
            return Response(400, json.loads(b'{"error": "\\ud800 is unknown"}'))
        return Response(200, {"method": method, "length": len(body)})


@pytest.fixture
def served():
    api = Echo()
    server = ApiServer("127.0.0.1", 0, api, RequestLimits(max_body_bytes=1000, deadline_secs=20))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server, api
    api.released.set()
    server.close(30)


def ask(connection, method, path="/", body=None):
    connection.request(method, path, body)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(response.read())


def test_a_connection_carries_many_requests(served):
    connection = http.client.HTTPConnection("127.0.0.1", served[0].server_port, timeout=30)
    assert ask(connection, "GET") == (200, {"method": "GET", "length": 0})
    first = connection.sock
    assert ask(connection, "POST", body=b"x" * 1000) == (200, {"method": "POST", "length": 1000})
    assert ask(connection, "POST", "/fail", b"") == (500, {"error": "RuntimeError: a defect"})
    assert ask(connection, "POST", "/surrogate", b"") == (400, {"error": "? is unknown"})
    assert ask(connection, "GET")[0] == 200 and connection.sock is first
    connection.close()


def test_limits_and_unknown_methods_are_answered_in_json(served):
    connection = http.client.HTTPConnection("127.0.0.1", served[0].server_port, timeout=30)
    code, content = ask(connection, "POST", body=b"x" * 1001)
    assert (code, "1001 bytes, and at most 1000 are allowed; send fewer instances" in content["error"]) == (413, True)
    assert ask(connection, "TRACE")[0] == 501
    assert ask(connection, "DELETE")[1]["method"] == "DELETE"  # the API answers 405
    length_and_pieces = "Transfer-Encoding: chunked\r\nContent-Length: 2"
    for head in ("Transfer-Encoding: chunked", length_and_pieces, "Content-Length: -1", "Content-Length: \xb2"):
        with socket.create_connection(("127.0.0.1", served[0].server_port), timeout=30) as client:
            client.sendall(f"POST / HTTP/1.1\r\n{head}\r\n\r\n".encode("latin-1"))
            assert client.recv(100).startswith(b"HTTP/1.1 411 ")
    connection.close()


def test_a_body_is_read_whatever_the_method(served):
    connection = http.client.HTTPConnection("127.0.0.1", served[0].server_port, timeout=30)
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        connection.request(method, "/", b"GET /fail HTTP/1.1\r\n\r\n")
        response = connection.getresponse()
        assert response.status == 200 and (response.read() == b"") == (method == "HEAD")
        assert ask(connection, "GET")[0] == 200
    connection.request("POST", "/", b"abc", {"Content-Encoding": "gzip"})
    response = connection.getresponse()
    assert (response.status, b"Content-Encoding gzip; send it uncompressed" in response.read()) == (415, True)
    connection.close()


def test_a_body_that_does_not_arrive_is_given_up():
    server = ApiServer("127.0.0.1", 0, Echo(), RequestLimits(max_body_bytes=1000, deadline_secs=0.2))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab")
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")
    server.close(30)


def test_a_connection_too_many_gets_503_and_a_later_one_is_served():
    server = ApiServer("127.0.0.1", 0, Echo(), RequestLimits(max_body_bytes=1000, deadline_secs=20, max_connections=1))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    first, second = (http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30) for _ in range(2))
    assert ask(first, "GET")[0] == 200
    second.request("POST", "/", b"abc")
    response = second.getresponse()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert json.loads(response.read())["error"].startswith("1 connections are open, ")
    assert ask(first, "GET")[0] == 200
    # The next one waits for its turn without a request, so that a third one finds both places taken.
    refused, closed = (socket.create_connection(("127.0.0.1", server.server_port), timeout=30) for _ in range(2))
    with refused, closed:
        assert closed.recv(10) == b""
    first.close()
    code, ends_at = 503, time.monotonic() + 30
    while code == 503 and time.monotonic() < ends_at:  # until the threads of the closed connections have ended
        second.close()
        with contextlib.suppress(OSError):
            code = ask(second, "GET")[0]
    assert code == 200
    second.close()
    server.close(30)


def test_the_end_waits_for_requests_in_progress(served):
    server, api = served
    answers = []

    def wait():
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        answers.append(ask(connection, "GET", "/wait"))
        connection.close()

    asking = threading.Thread(target=wait)
    asking.start()
    assert api.reached.wait(30)
    closing = threading.Thread(target=server.close, args=(30,))
    closing.start()
    api.released.set()
    closing.join(30)
    asking.join(30)
    assert answers == [(200, {"method": "GET", "length": 0})]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=30)


def test_a_port_in_use_is_named(served):
    port = served[0].server_port
    with pytest.raises(UsageError, match=f"--host=127.0.0.1 --port={port} cannot be used: .*--port=0 for a free one"):
        ApiServer("127.0.0.1", port, Echo(), RequestLimits(1000, 1))
