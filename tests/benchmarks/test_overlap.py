"""Settings, shares and runs of the benchmark of overlap; the clusters are replaced."""

from __future__ import annotations

import csv
import json
import pathlib

import numpy as np
import pytest

from benchmarks import overlap, overlap_setting
from benchmarks.overlap_model import Layered
from benchmarks.overlap_setting import NUM_LAYERS, Setting
from ps_trainer import options
from ps_trainer.store.packed import Packed
from ps_trainer.store.trace import trace
from tests.testing.step_records import step_record

import tensorflow.compat.v1 as tf  # isort: skip - after the benchmark's environment

BENCHMARKS = pathlib.Path(overlap.__file__).parent


def setting(**fields):
    defaults = {"rate": "100mbit", "update": "async", "num_ps": 1, "num_workers": 1, "model_mb": 20.0}
    return Setting(**{**defaults, "num_pieces": 0, "compute": 1.0, "batch_size": 1, **fields})


def test_the_floor_is_a_pull_and_a_push_through_the_busiest_link():
    one = setting()
    assert one.num_bytes == 20 * 500**2 * 4
    assert one.floor_secs == pytest.approx(2 * 20e6 / (12.5e6 * 1448 / 1514))
    assert setting(num_workers=3).floor_secs == pytest.approx(3 * one.floor_secs)
    assert setting(num_workers=2, num_ps=2).floor_secs == pytest.approx(one.floor_secs)
    # Colocated, a worker pulls and pushes 2/3 of the model, and the other two a third each from its share.
    assert setting(num_workers=3, num_ps=0).floor_secs == pytest.approx(2 / 3 * one.floor_secs)


@pytest.mark.parametrize("num_pieces", [1, 2, 5, 10, 20])
def test_the_layout_makes_as_many_pieces_as_asked(num_pieces):
    sizes = setting(num_pieces=num_pieces).piece_bytes()
    assert (len(sizes), sum(sizes)) == (num_pieces, 20 * 500**2 * 4)


def test_the_pieces_are_those_of_the_layout():
    one = setting(num_workers=2)
    training = one.training(computes=False, steps_per_call=1)
    layout_options = options.parse(Packed.Options, training["layout_option"], "--layout_option")
    store = Packed(layout_options, ps_devices=["/job:ps/task:0"], worker_device="/job:worker/task:0", worker_index=0,
                   spans_hosts=True)  # fmt: skip
    model = Layered(Layered.Options(width=one.width))
    with tf.Graph().as_default():
        store.create(trace(lambda: model.build({"label": tf.constant([1], tf.int64)}, training=True), 0))
    assert [4 * piece.variable.shape.num_elements() for piece in store.pieces] == one.piece_bytes()


def test_all_pauses_of_a_step_last_as_long_as_asked():
    pauses = setting(compute=0.5).pause_ms * 3 * NUM_LAYERS / 1000
    assert pauses == pytest.approx(0.5 * setting().floor_secs)


def test_a_pause_changes_neither_values_nor_gradients():
    results = []
    for pause_ms in (0.0, 0.1):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(3)
            model = Layered(Layered.Options(width=3, pause_ms=pause_ms))
            loss = model.build({"label": tf.constant([1, 2], tf.int64)}, training=True).loss
            gradients = tf.gradients(loss, tf.trainable_variables())
            session.run(tf.global_variables_initializer())
            weights = np.linspace(-0.5, 0.5, 9).reshape(3, 3)
            results.append(session.run([loss, *gradients], dict.fromkeys(tf.trainable_variables(), weights)))
    for plain, paused in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, paused)
    assert results[0][0] > 0


def test_each_row_compares_the_step_with_transfer_and_computation(tmp_path, monkeypatch):
    class Trained:
        def __init__(self, secs):
            self.round_secs = secs
            self.warm_steps = [step_record(t_end=secs * step) for step in range(5)]

    class Alone:
        def __init__(self, *, flags, **fields):
            assert not any(flag.startswith("--steps_per_call") for flag in flags)

        def train(self, folder):
            return Trained(2.0)

    class Shaped:
        def __init__(self, *, settings, **fields):
            self._has_pauses = "pause_ms=0" not in settings["model_option"]

        def train(self, folder):
            return Trained(2.5 if self._has_pauses else 1.25)

    monkeypatch.setattr(overlap, "Cluster", Alone)
    monkeypatch.setattr(overlap, "ShapedCluster", Shaped)
    monkeypatch.setattr(overlap.shaped_clusters, "why_not", lambda: "")
    schedules = []

    def move(schedule, rate, num_workers, num_steps):
        schedules.append(schedule)
        return 1.0 if schedule.pause_secs else 0.5

    monkeypatch.setattr(overlap.overlap_sockets, "measure", move)
    argv = ["--rates=100mbit", "--sizes_mb=20", "--rules=sync", "--pieces=1,5", f"--out_dir={tmp_path / 'out'}"]
    assert overlap.main(argv) == 0
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [row["num_pieces"] for row in rows] == [1, 5]
    assert rows[0]["line_share"] == pytest.approx(setting().floor_secs / 1.25, rel=1e-3)
    assert (rows[0]["ratio"], rows[0]["ratio_to_sum"]) == (1.25, pytest.approx(2.5 / 3.25, rel=1e-3))
    assert (rows[0]["socket_transfer_secs"], rows[0]["ratio_to_sockets"]) == (0.5, 2.5)
    assert [len(schedule.piece_bytes) for schedule in schedules] == [1, 1, 5, 5]
    assert all(schedule.waits for schedule in schedules)
    assert schedules[1].pause_secs * 3 * NUM_LAYERS == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rates=foo"], "argument --rates: --rates='foo' is not a rate; write a number with bit, kbit, mbit or gbit"),
        (["--rates=100mbit,90gbit"], "--rates='90gbit' is 90,000,000,000 bit/s; allowed are 1mbit..10gbit"),
        (["--pieces=-1"], "argument --pieces: '-1' has a number below 0"),
        (["--pieces=x"], "argument --pieces: 'x' is not a list of whole numbers such as 1,2"),
        (["--pieces=21"], "--pieces=21: a task has 20 of the 20 layers, and a piece has one layer or more"),
        (["--pieces=11", "--num_ps=0", "--num_workers=2"], "--pieces=11: a task has 10 of the 20 layers"),
        (["--num_ps=21"], "21 tasks cannot share the 20 layers of the model; start at most 20"),
        (["--num_ps=0"], "--num_ps=0 --num_workers=1: one worker holds all parameters, so nothing travels"),
        (["--rules=async,no_rule"], "argument --rules: unknown 'no_rule'; known: async, "),
        (["--rules=hybrid"], "argument --rules: unknown 'hybrid'; known: async, "),  # the model has no table
        (["--compute=-1"], "argument --compute: -1 must be at least 0, and finite"),
        (["--compute=nan"], "argument --compute: nan must be at least 0, and finite"),
        (["--steps_per_call=20000"], "--steps_per_call"),
    ],
)
def test_a_wrong_flag_ends_with_one_line_before_there_is_a_folder(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(overlap.shaped_clusters, "why_not", lambda: "")
    monkeypatch.setattr(overlap, "measure", lambda *_: pytest.fail("a wrong flag was measured"))
    out_dir = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        overlap.main([*flags, f"--out_dir={out_dir}"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not out_dir.exists()


def test_full_links_in_both_directions_are_twice_the_line_rate_with_ps_tasks_and_once_without():
    """The bytes of a round in one direction of the busiest link give the least time of the round."""
    one = setting(num_workers=2)
    share = one.num_bytes / overlap_setting.payload_bytes_per_sec(one.rate)
    # The ps task receives two gradients, and sends the parameters twice.
    assert one.floor_secs / (2 * share) == pytest.approx(2)
    # A worker receives the other's half of the parameters and the gradient of its own half, and sends as much.
    assert setting(num_workers=2, num_ps=0).floor_secs / (2 * share / 2) == pytest.approx(1)


def test_the_page_says_how_much_of_the_line_rate_the_stored_runs_have():
    with (BENCHMARKS / "results" / "overlap.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def shares(update: str, num_ps: int) -> list[str]:
        found = [row for row in rows if row["update"] == update and int(row["num_ps"]) == num_ps]
        return [
            f"{100 * float(row['line_share']):.0f}" for row in sorted(found, key=lambda row: float(row["line_share"]))
        ]

    sockets = max(float(row["floor_secs"]) / float(row["socket_transfer_secs"]) for row in rows if row["num_ps"] == "1")
    text = " ".join((BENCHMARKS / "README.md").read_text(encoding="utf-8").split())
    for update in ("async", "sync"):
        lowest, *_, highest = shares(update, 1)
        assert f"`{update}` used {lowest} to {highest} %" in text
    assert f"`async` used {shares('async', 0)[0]} % and `sync` {shares('sync', 0)[0]} %" in text
    assert f"plain sockets had up to {100 * sockets:.0f} %" in text
