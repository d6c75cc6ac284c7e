"""The parsers raise only errors of the project for any input: seeded random changes of valid input."""

from __future__ import annotations

import dataclasses
import gzip
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ps_trainer import component_tables, options
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import HelpRequested
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cluster import addresses, sources
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.config import TrainConfig
from ps_trainer.data.formats import idx
from ps_trainer.disturbances import delays, faults
from ps_trainer.errors import UsageError
from ps_trainer.launch.hosts_rate import parse_rate
from ps_trainer.options import option, repeatable
from ps_trainer.registry import split_inline
from tests.bad_input import mutations

SEEDS = range(2)
COUNT = 300
COMMAND = CommandHelp(usage=("prog",), text="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryType:
    """A field of each type that options may have."""

    flag: bool = option(False, "")
    whole: int = option(1, "")
    number: float = option(1.0, "")
    text: str = option("", "")
    limit: int | None = option(None, "")
    rate: float | None = option(None, "")
    sizes: tuple[int, ...] = option((), "")
    shares: tuple[float, ...] = option((), "")
    names: tuple[str, ...] = option((), "")
    many: tuple[str, ...] = repeatable("")


def check(parse: Callable[[Any], Any], inputs: Any) -> None:
    """Parses each input; a parser may reject it only by an error of the project, and must reject at least one."""
    num_refused = 0
    for given in inputs:
        try:
            parse(given)
        except UsageError as error:
            num_refused += 1
            assert str(error)
        except HelpRequested:
            pass
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__} for {str(given)[:300]!r}: {error}") from error
    assert num_refused > COUNT // 20


TF_CONFIGS = [
    json.dumps({"cluster": jobs, "task": task, "environment": "cloud"})
    for jobs in (
        {"ps": ["h0:2222"], "worker": ["h1:2222", "[::1]:2223"]},
        {"ps": ["h0:2222"], "master": ["10.0.0.1:1"], "evaluator": ["h2:1"]},
    )
    for task in ({"type": "ps", "index": 0}, {"type": "worker", "index": "1"}, {})
]

FLAG_LINES = [
    "--ps_hosts=h0:1 --worker_hosts=h1:1,h2:1 --task_index=1",
    "--batch_size=3 --nostep_log --update_option=a=1 --learning_rate=0.1",
    "--max_steps none --num_epochs=2 --step_log=true --logdir=runs/x",
]


@pytest.mark.parametrize("seed", SEEDS)
class TestText:
    def test_addresses(self, seed):
        seeds = ["host:2222", "10.0.0.1:1", "[::1]:2222", "[fe80::1%eth0]:65535", "a.b-c_d:80"]
        check(lambda text: addresses.split_address(text, "x"), mutations.texts(seeds, COUNT, seed))
        check(lambda text: addresses.same_place(text, "x"), mutations.texts(seeds, COUNT, seed))

    def test_tf_config(self, seed):
        check(sources.from_tf_config, mutations.texts(TF_CONFIGS, COUNT, seed))

    def test_host_lists(self, seed):
        seeds = ["h0:1,h1:1", "h2:1", "h0:1, h3:1"]
        check(lambda text: sources.from_flags(text, "w:1", None, "worker", 0), mutations.texts(seeds, COUNT, seed))
        check(lambda text: sources.from_flags("p:1", text, text, "chief", 0), mutations.texts(seeds, COUNT, seed))

    def test_command_lines(self, seed):
        def parse(line):
            flags_lib.parse(["prog", *line.split(" ")], COMMAND, ClusterFlags, TrainConfig)

        check(parse, mutations.texts(FLAG_LINES, COUNT, seed))

    def test_options_of_every_type(self, seed):
        fields = ["flag=true", "whole=3", "number=0.5", "text=x", "limit=none", "rate=1e-3", "sizes=1,2", "shares=.5"]
        check(
            lambda text: options.parse(EveryType, [text, "names=a,b"], "--x_option"),
            mutations.texts(fields, COUNT, seed),
        )

    def test_configurations(self, seed):
        names = [field.name for field in dataclasses.fields(TrainConfig)]
        lines = [f"--{name}={value}" for name in names for value in ("1", "cnn", "0.5", "none", "exp:mean_ms=3")]

        def parse(line):
            (config,) = flags_lib.parse(["prog", line], COMMAND, TrainConfig).groups
            config.check()

        check(parse, mutations.texts(lines, COUNT, seed))

    def test_delays(self, seed):
        seeds = [
            *("exp:mean_ms=10,worker=1", "pareto:alpha=2.1", "lognormal:sigma=0.5", "burst", "det:mean_ms=1"),
            *("trace:file=x.csv,column=2", "spike", "persistent", "shifted_exp:alpha=0.5"),
        ]
        check(lambda text: delays.parse_all([text], 2), mutations.texts(seeds, COUNT, seed))

    def test_inline_names(self, seed):
        seeds = ["top_k:ratio=0.1,x=2", "package.module:Class:key=value", "clip_norm"]
        check(
            lambda text: component_tables.GRADIENT_TRANSFORMS.load(split_inline(text)[0]),
            mutations.texts(seeds, COUNT, seed),
        )

    def test_faults(self, seed):
        cluster = faults.ClusterShape(num_ps=2, num_workers=3, max_steps=100, has_links=True)
        seeds = [
            *(
                "kill:worker:1@step=20",
                "freeze:ps:0@step=5,secs=20",
                "term:chief@after_secs=3",
                "raise:worker:2@step=9",
            ),
            *("cut:worker:1@step=3,secs=2", "slow_ps:ps:1@step=3,ms=5", "chaos:kills=10,roles=ps+worker+chief,seed=1"),
        ]
        check(lambda text: faults.parse_all([text], cluster), mutations.texts(seeds, COUNT, seed))

    def test_rates(self, seed):
        check(lambda text: parse_rate(text, "--rate"), mutations.texts(["200mbit", "1.5gbit", "25mbps"], COUNT, seed))


def images_file() -> bytes:
    return struct.pack(">BBBBIII", 0, 0, 8, 3, 5, 4, 4) + bytes(range(5 * 4 * 4))


@pytest.mark.parametrize("seed", SEEDS)
class TestFiles:
    def test_cluster_files(self, tmp_path, seed):
        path = tmp_path / "cluster.json"

        def parse(content):
            path.write_bytes(content)
            sources.from_file(path, "worker", 0)

        check(parse, mutations.contents([text.encode() for text in TF_CONFIGS], COUNT, seed))

    def test_flag_files(self, tmp_path, seed):
        path = tmp_path / "flags"

        def parse(content):
            path.write_bytes(content)
            flags_lib.parse(["prog", f"--flagfile={path}"], COMMAND, ClusterFlags, TrainConfig)

        lines = [line.replace(" ", "\n").encode() for line in FLAG_LINES]
        check(parse, mutations.contents(lines, COUNT, seed))

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_idx_files(self, tmp_path, seed, suffix):
        path = tmp_path / f"train-images-idx3-ubyte{suffix}"

        def parse(content):
            path.write_bytes(content)
            idx.read_idx(path, num_dims=3)

        valid = gzip.compress(images_file(), mtime=0) if suffix else images_file()
        check(parse, mutations.contents([valid], COUNT, seed))

    def test_traces(self, tmp_path, seed):
        path = tmp_path / "trace.csv"

        def parse(content):
            path.write_bytes(content)
            next(delays.parse(f"trace:file={path},column=1").blocks(delays.rng_for(0, 0)))

        check(parse, mutations.contents([b"step,secs\n0,0.1\n1,0.25\n", b"0.5,0.1\n0.1,3e-2\n"], COUNT, seed))
