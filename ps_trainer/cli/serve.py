"""`ps_trainer serve`: answers predictions over HTTP, in the form of TensorFlow Serving's REST API."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, UsageError
from ps_trainer.options import option

_PATIENCE_SECS = 3.0  # for requests in progress at the end; `run_job` ends the process after 8 s


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeFlags:
    """The endpoint and its limits."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 = every address of this machine, for anybody")
    port: int = option(8501, "port to listen on; 0 = a free one", least=0, most=65535)
    name: str | None = option(None, "name of the model in paths; none = the name of --model")
    reload_secs: float = option(10.0, "seconds between looks for a newer checkpoint; 0 = never", least=0)
    deadline_secs: float = option(30.0, "seconds for a request to arrive, and for its prediction", above=0, most=3600)
    max_body_bytes: int = option(2**23, "largest size of a request's body", least=1)
    max_connections: int = option(64, "connections served at a time; the next ones get 503", least=1, most=10_000)


HELP = CommandHelp(
    usage=("ps_trainer serve --logdir=DIR [--port=PORT] [flags]",),
    text="""Serves predictions of the newest loadable checkpoint over HTTP, in the form of TensorFlow Serving's
REST API, until Ctrl-C or SIGTERM. The paths are /v1/models/NAME, /v1/models/NAME/metadata and
/v1/models/NAME:predict. It listens on this machine only, unless --host says otherwise; it knows neither
passwords nor encryption.""",
    examples=(
        ("ps_trainer serve --logdir=runs/a", "serve on http://127.0.0.1:8501"),
        ("ps_trainer serve --logdir=runs/a --port=0 --reload_secs=60", "serve on a free port, which it prints"),
    ),
    flags=(ServeFlags, CheckpointFlags, TrainConfig),
    common=(
        "host",
        "port",
        "name",
        "reload_secs",
        "deadline_secs",
        "max_body_bytes",
        "max_connections",
        *run_lookup.COMMON_FLAGS,
    ),
    shows_only_common=True,
    own_texts=run_lookup.OWN_TEXTS,
)


def main_serve(argv: Sequence[str]) -> int:
    """Serves until a signal; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, ServeFlags, CheckpointFlags, TrainConfig)
    serve_flags, checkpoint_flags, config = parsed.groups
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    name = serve_flags.name or config.model.rpartition(":")[2]
    if not re.fullmatch(r"[\w.-]+", name):
        raise UsageError(f"--name={name}: a name has letters, digits, '.', '-' and '_' only")
    run_lookup.start()

    with importing_tensorflow():
        from ps_trainer.inference.http_server import ApiServer, RequestLimits
        from ps_trainer.inference.rest_api import RestApi
        from ps_trainer.inference.served_model import ServedModel
        from ps_trainer.runtime.job_runner import StopRequest, run_job
        from ps_trainer.training import components

    model = ServedModel(
        components.load(config, 1, trained_run=checkpoint_dir.parent), checkpoint_dir, serve_flags.deadline_secs
    )
    limits = RequestLimits(serve_flags.max_body_bytes, serve_flags.deadline_secs, serve_flags.max_connections)
    server = ApiServer(serve_flags.host, serve_flags.port, RestApi(name, model), limits)

    def serve(stop: StopRequest) -> int:
        ended = threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.1,), name="serve", daemon=True).start()
        if serve_flags.reload_secs:
            arguments = (ended, serve_flags.reload_secs)
            threading.Thread(target=model.keep_newest, args=arguments, name="reload", daemon=True).start()
        print(f"step {model.loaded.version} of {config.model}: {server.url}/v1/models/{name}", flush=True)
        while not stop.wait(60.0):
            pass
        ended.set()
        server.close(_PATIENCE_SECS)
        stop.check()
        return EXIT_DONE

    return run_job(serve)
