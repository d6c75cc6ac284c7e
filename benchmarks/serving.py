"""Measures latency and memory of `ps_trainer serve`.

    python -m benchmarks.serving LOGDIR --connections=1,4 --requests=1000 --out=serving.json

It starts the endpoint of a run on a free port. Each connection sends its share of the requests one after the other, on
a connection that stays open. Latency is the time from the call to the whole answer, as the client sees it; both share
the machine's cores. Memory is the largest resident size of the endpoint so far (Linux). The first requests, which are
not counted, warm up the model.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import arguments
from benchmarks.process_memory import peak_mib
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED
from ps_trainer.experiments.harness.provenance import origin_sentence, provenance

_START_SECS = 120
_ANSWER_SECS = 60
_NUM_WARM_UP = 20


class Endpoint(NamedTuple):
    """A running endpoint.

    Attributes:
        process: Its process.
        host: Host and port, for `http.client`.
        path: Path of the model.
    """

    process: subprocess.Popen[str]
    host: str
    path: str

    def ask(self, connection: http.client.HTTPConnection, verb: str, body: bytes | None = None) -> Any:
        """Sends a request and returns the content of the answer.

        Raises:
            RuntimeError: The code of the answer is not 200.
        """
        connection.request("GET" if body is None else "POST", self.path + verb, body)
        response = connection.getresponse()
        content = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"the endpoint answered {response.status}: {content}")
        return content

    def max_memory_mib(self) -> float | None:
        """Returns the largest resident size so far in MiB; None where the system does not tell."""
        with contextlib.suppress(OSError):
            return peak_mib(self.process.pid)
        return None


@contextlib.contextmanager
def endpoint(arguments_: Sequence[str]) -> Iterator[Endpoint]:
    """Starts `ps_trainer serve` on a free port and ends it by SIGTERM."""
    command = [sys.executable, "-m", "ps_trainer", "serve", "--port=0", *arguments_]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # Ends a process that does not say its address, so that the read below ends as well.
    limit = threading.Timer(_START_SECS, process.kill)
    limit.start()
    try:
        line = process.stdout.readline() if process.stdout else ""
        limit.cancel()
        found = re.search(r"http://([^/]+)(/\S+)", line)
        if found is None:
            raise RuntimeError(f"the endpoint did not start within {_START_SECS} s: {line!r}")
        yield Endpoint(process, found[1], found[2])
    finally:
        limit.cancel()
        process.send_signal(signal.SIGTERM)
        process.wait(_ANSWER_SECS)
        if process.stdout:
            process.stdout.close()


def zeros_of(metadata: Any) -> bytes:
    """Returns a request with one instance of zeros that suits the endpoint's metadata."""
    inputs = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]

    def zero(described: Any) -> Any:
        sizes = [max(1, int(dim["size"])) for dim in described["tensor_shape"].get("dim", [])[1:]]
        return np.zeros(sizes, np.int64 if "INT" in described["dtype"] else np.float32).tolist()

    return json.dumps({"instances": [{name: zero(described) for name, described in inputs.items()}]}).encode()


def measure(served: Endpoint, request: bytes, num_connections: int, num_requests: int) -> dict[str, Any]:
    """Sends requests on several connections at once; returns figures by name."""

    def send(count: int) -> list[float]:
        connection = http.client.HTTPConnection(served.host, timeout=_ANSWER_SECS)
        secs = []
        with contextlib.closing(connection):
            for _ in range(count):
                started = time.perf_counter()
                served.ask(connection, ":predict", request)
                secs.append(time.perf_counter() - started)
        return secs

    send(_NUM_WARM_UP)
    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(num_connections) as pool:
        shares = list(pool.map(send, [-(-num_requests // num_connections)] * num_connections))
    elapsed = time.perf_counter() - started
    secs = np.concatenate(shares)
    p50, p99 = np.percentile(secs, [50, 99])
    return {
        "connections": num_connections,
        "requests": len(secs),
        "requests_per_sec": round(len(secs) / elapsed, 1),
        "p50_ms": round(1000 * p50, 3),
        "p99_ms": round(1000 * p99, 3),
        "max_memory_mib": served.max_memory_mib(),
    }


def main(argv: Sequence[str]) -> int:
    """Measures, prints and writes; returns 0, or 1 if the endpoint did not end cleanly."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("logdir", type=pathlib.Path, help="folder of a run")
    parser.add_argument("--connections", type=arguments.counts, default=[1, 4], help="numbers of connections at once")
    parser.add_argument("--requests", type=arguments.at_least(1), default=1000, help="requests for each number")
    parser.add_argument("--request", help='body of a request, such as {"instances": […]}; default: one of zeros')
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("serving.json"), help="file to write")
    flags = parser.parse_args(argv)
    if not flags.logdir.is_dir():
        parser.error(f"{flags.logdir} is not a folder; name the --logdir of a run")
    origin = provenance([*["python", "-m", "benchmarks.serving"], *argv])
    rows = []
    with endpoint([f"--logdir={flags.logdir}"]) as served:
        with contextlib.closing(http.client.HTTPConnection(served.host, timeout=_ANSWER_SECS)) as connection:
            request = flags.request.encode() if flags.request else zeros_of(served.ask(connection, "/metadata"))
        for num_connections in flags.connections:
            rows.append(measure(served, request, num_connections, flags.requests))
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    flags.out.write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n")
    print(origin_sentence(origin))
    return EXIT_DONE if served.process.returncode == 128 + signal.SIGTERM else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
