"""The HTTP side of the endpoint: connections, limits and the end; what a request means is in `rest_api.py`."""

from __future__ import annotations

import contextlib
import http
import http.server
import json
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import logging

from ps_trainer.errors import UsageError
from ps_trainer.inference.rest_api import ApiError, Response, RestApi

_CHUNK_BYTES = 2**16


class RequestLimits(NamedTuple):
    """Limits of a request.

    Attributes:
        max_body_bytes: Largest size of a request's body.
        deadline_secs: Time in seconds for the arrival of a request, and again for its prediction. A connection without
            requests is closed after the same time.
        max_connections: Number of connections that are served at a time. As many more are told to come again; those
            beyond are closed.
    """

    max_body_bytes: int
    deadline_secs: float
    max_connections: int = 64


class ApiServer(http.server.ThreadingHTTPServer):
    """Listens on an address, with a thread for each connection.

    Args:
        host: Name or address to listen on.
        port: Port; 0 = a free one.
        api: Function from a request to its answer.
        limits: Limits of a request.

    Raises:
        UsageError: The address cannot be used.
    """

    request_queue_size = 128

    def __init__(self, host: str, port: int, api: RestApi, limits: RequestLimits):
        self.api, self.limits = api, limits
        self._idle = threading.Condition()
        self._num_active = 0
        self._connections: dict[Any, bool] = {}  # whether each is served
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = found[0][0]
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"--host={host} --port={port} cannot be used: {error.strerror or error}; give another --host,"
                " another --port, or --port=0 for a free one"
            ) from error

    def server_bind(self) -> None:
        """Binds the socket; the base class would also ask the name server for a name, which can take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def url(self) -> str:
        """Address with the port."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}"

    def close(self, patience_secs: float) -> None:
        """Stops listening, and waits until the requests in progress are answered, at most `patience_secs`."""
        self.shutdown()
        self.socket.close()
        with self._idle:
            if not self._idle.wait_for(lambda: not self._num_active, patience_secs):
                logging.warning("%d requests are not answered", self._num_active)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, unless there are far too many."""
        limit = self.limits.max_connections
        with self._idle:
            num_served = sum(self._connections.values())
            is_refused = len(self._connections) - num_served >= limit
            if not is_refused:
                self._connections[request] = num_served < limit
        if is_refused:
            logging.warning("a connection of %s is closed: too many at a time", client_address)
            super().shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        super().shutdown_request(request)
        with self._idle:
            self._connections.pop(request, None)

    def serves(self, connection: Any) -> bool:
        """Returns whether requests of a connection are answered; otherwise its client should come again."""
        with self._idle:
            return self._connections.get(connection, True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs in one line why a connection ended, such as a client that has gone."""
        logging.info("a connection of %s ended: %s", client_address, sys.exc_info()[1])

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Counts a request in progress."""
        with self._idle:
            self._num_active += 1
        try:
            yield
        finally:
            with self._idle:
                self._num_active -= 1
                self._idle.notify_all()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"
    server_version = "ps_trainer"
    # Head and body of a response leave in one packet, at once.
    wbufsize = _CHUNK_BYTES
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.deadline_secs)

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("GET")  # `_send` leaves out the content

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        with self.server.active():
            try:
                # A body that stayed unread would be taken for the next request of the connection.
                has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
                body = self._body() if method == "POST" or has_body else b""
                if not self.server.serves(self.connection):
                    raise ApiError(503, self._too_many())
                answer = self.server.api.answer(method, self.path, body)
            except ApiError as error:
                self.close_connection = True  # the rest of the body is unread
                answer = Response(error.code, {"error": str(error)})
            except Exception as error:  # noqa: BLE001 - a defect must not end the connection without an answer
                logging.exception("a request failed")
                answer = Response(500, {"error": f"{type(error).__name__}: {error}"})
            self._send(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what the base class rejects, such as an unknown method, in JSON as well."""
        self.close_connection = True
        self._send(Response(code, {"error": message or explain or self.responses.get(code, ("",))[0]}))

    def log_message(self, format: str, *args: object) -> None:
        """Leaves out the base class's line for each request."""

    def _too_many(self) -> str:
        limit = self.server.limits.max_connections
        return f"{limit} connections are open, the most that this server answers; try again later, over fewer"

    def _body(self) -> bytes:
        limits, given = self.server.limits, self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", given):
            raise ApiError(411, "the body must come in one piece, and the request name its size by Content-Length")
        length = int(given)
        ends_at = time.monotonic() + limits.deadline_secs
        is_fit = length <= limits.max_body_bytes
        parts, missing = [], length
        # A client that is still sending would not see the answer, so part of a body that is too long is read as well.
        while missing > (0 if is_fit else max(0, length - 2 * limits.max_body_bytes)):
            try:
                part = self.rfile.read1(min(missing, _CHUNK_BYTES))
            except TimeoutError:
                part = b""
            if not part or time.monotonic() > ends_at:
                raise ApiError(
                    408, f"the body did not arrive within {limits.deadline_secs:g} s; send less in a request"
                )
            missing -= len(part)
            parts += [part] if is_fit else []
        if not is_fit:
            raise ApiError(
                413,
                f"the body has {length} bytes, and at most {limits.max_body_bytes} are allowed; send fewer instances",
            )
        if (coding := self.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise ApiError(415, f"the body has the Content-Encoding {coding}; send it uncompressed")
        return b"".join(parts)

    def _send(self, answer: Response) -> None:
        # An error may name half a surrogate pair of the request, which UTF-8 cannot express.
        content = (json.dumps(answer.content, ensure_ascii=False) + "\n").encode(errors="replace")
        self.send_response(answer.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        if answer.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()
