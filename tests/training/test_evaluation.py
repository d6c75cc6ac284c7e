"""Test metrics of given parameters against NumPy, in the evaluator and on the command line."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from ps_trainer.checkpoints import writer
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.errors import CheckpointError, DataError, OptionError, PeerFailedError, PsLostError, StalledError
from ps_trainer.training import components as components_lib
from ps_trainer.training import evaluator
from ps_trainer.training.evaluation import evaluate
from tests.testing import components as small
from tests.testing.cluster import config_of
from tests.testing.logs import log_lines

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers
from models.matrix_factorization import MatrixFactorization
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Status
from tests.runtime.fakes import GONE, FakeControl, ready_run, roster

NUM_EXAMPLES = 256 + 44  # the last batch is a smaller one
CONFIG = config_of("Dense", "Rows", [f"num_examples={NUM_EXAMPLES}", "has_test=true"])


class WithTable:
    """A model with a lookup table, a count in a local variable, and a kernel partitioned over ps tasks."""

    def build(self, batch, training):
        keys = tf.range(small.NUM_CLASSES, dtype=tf.int64)
        labels = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys), -1)
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
            logits_BC = layers.dense(batch["x"], small.NUM_CLASSES, "logits")
        _, count_op = tf.metrics.mean(batch["x"])
        with tf.control_dependencies([count_op]):
            return layers.classifier_output(logits_BC, labels.lookup(batch["label"]))


def values_of(seed=0, scale=1.0):
    random = np.random.RandomState(seed)
    shapes = {
        "hidden/kernel": [small.NUM_FEATURES, 5],
        "hidden/bias": [5],
        "logits/kernel": [5, small.NUM_CLASSES],
        "logits/bias": [small.NUM_CLASSES],
    }
    return {name: (scale * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def expected(values):
    """Mean cross-entropy and accuracy of `Dense` over all rows."""
    rows = small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays
    hidden = np.tanh(rows["x"] @ values["hidden/kernel"] + values["hidden/bias"])
    return classified(hidden @ values["logits/kernel"] + values["logits/bias"], rows["label"])


def classified(logits, labels):
    log_sums = np.log(np.exp(logits).sum(axis=1))
    loss = np.mean(log_sums - logits[np.arange(len(labels)), labels])
    return {"loss": loss, "accuracy": np.mean(logits.argmax(axis=1) == labels)}


def assert_metrics(got, wanted):
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)


def test_metrics_are_means_over_the_examples_not_the_batches():
    values = values_of()
    assert_metrics(evaluate(components_lib.load(CONFIG, 1), values), expected(values))


class Weighed:
    """A model whose loss is the mean over the rows that count; their number differs between batches."""

    def build(self, batch, training):
        loss_B, counts_B = batch["x"][:, 0], tf.cast(tf.equal(batch["label"], 0), tf.float32)
        weight = tf.reduce_sum(counts_B)
        loss = tf.reduce_sum(loss_B * counts_B) / weight
        return layers.ModelOutput(loss, loss_B, {"mean": loss_B}, loss_weight=weight)


def test_the_loss_is_the_mean_over_the_models_num_loss_terms():
    config = dataclasses.replace(CONFIG, model=f"{__name__}:Weighed")
    rows = small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays
    wanted = {"loss": np.mean(rows["x"][rows["label"] == 0, 0]), "mean": np.mean(rows["x"][:, 0])}
    assert_metrics(evaluate(components_lib.load(config, 1), {}), wanted)


def test_a_model_may_have_tables_local_variables_and_a_partitioner():
    config = dataclasses.replace(CONFIG, model=f"{__name__}:WithTable")
    random = np.random.RandomState(0)
    values = {
        "logits/kernel": random.standard_normal([small.NUM_FEATURES, small.NUM_CLASSES]).astype(np.float32),
        "logits/bias": np.ones([small.NUM_CLASSES], np.float32),
    }
    rows = small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays
    wanted = classified(rows["x"] @ values["logits/kernel"] + values["logits/bias"], rows["label"])
    assert_metrics(evaluate(components_lib.load(config, 1), values), wanted)


def test_values_beyond_the_models_variables_do_not_matter():
    values = values_of()
    more = values | {"global_step": np.int64(3), "logits/bias/Adam": np.zeros(4)}
    assert evaluate(components_lib.load(CONFIG, 1), more) == evaluate(components_lib.load(CONFIG, 1), values)


class FewClasses:
    """A model with fewer classes than the labels of `Rows`."""

    def build(self, batch, training):
        return layers.classifier_output(layers.dense(batch["x"], 2, "logits"), batch["label"])


def test_a_label_that_is_too_large_names_the_option():
    config = dataclasses.replace(CONFIG, model=f"{__name__}:FewClasses")
    values = {"logits/kernel": np.zeros([small.NUM_FEATURES, 2], np.float32), "logits/bias": np.zeros(2, np.float32)}
    with pytest.raises(DataError, match=r"label [23], .* classes 0 to 1; .*--model_option=num_classes=[34] or more"):
        evaluate(components_lib.load(config, 1), values)


def test_an_id_that_is_too_large_names_the_option(tmp_path):
    (tmp_path / "u.data").write_text("".join(f"{user}\t1\t3\t0\n" for user in (7, 1, 2)))
    config = dataclasses.replace(
        CONFIG, model="matrix_factorization", dataset="movielens", dataset_option=(), data_dir=str(tmp_path)
    )
    # As with a dataset that does not know how many users it has.
    too_small = MatrixFactorization(MatrixFactorization.Options(num_users=5, num_items=2, dim=1))
    loaded = components_lib.load(config, 1)._replace(model=too_small)
    values = {"users": np.zeros([5, 2], np.float32), "items": np.zeros([2, 2], np.float32)}
    with pytest.raises(DataError, match=r"^embedding table users .* --model_option=num_users=.* of the batch: 7 7$"):
        evaluate(loaded, values)


def test_each_value_of_a_checkpoint_is_read_once(tmp_path, monkeypatch):
    writer.write(tmp_path, 7, values_of())
    read, get = [], Checkpoint.__getitem__
    monkeypatch.setattr(Checkpoint, "__getitem__", lambda self, name: read.append(name) or get(self, name))
    checkpoint = Checkpoint(tmp_path / "model.ckpt-7")
    evaluate(components_lib.load(CONFIG, 1), checkpoint)
    assert "hidden/kernel" in checkpoint and "other" not in checkpoint
    assert sorted(read) == sorted(values_of())


def test_a_missing_variable_is_named():
    values = values_of()
    del values["logits/bias"]
    with pytest.raises(
        CheckpointError, match=r"model variable 'logits/bias' is missing in the checkpoint; .* shape \[4\]"
    ):
        evaluate(components_lib.load(CONFIG, 1), values)


def test_a_variable_of_another_shape_is_named():
    values = values_of() | {"hidden/kernel": np.zeros([6, 7], np.float32)}
    with pytest.raises(
        CheckpointError, match=r"'hidden/kernel' has the shape \[6, 7\]; the model needs the shape \[6, 5\]"
    ):
        evaluate(components_lib.load(CONFIG, 1), values)


class TestMain:
    def test_prints_the_metrics_of_the_newest_checkpoint(self, tmp_path, capsys):
        for step in (3, 12):
            writer.write(tmp_path, step, values_of(step) | {"global_step": np.int64(step)})
        assert evaluator.main(CONFIG, checkpoint_dir=tmp_path) == 0
        wanted = expected(values_of(12))
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{tmp_path / 'model.ckpt-12'}: ")
        words = line.split()
        got = dict(zip(words[1::2], map(float, words[2::2]), strict=True))
        assert got == {name: round(float(value), 4) for name, value in wanted.items()}

    def test_without_a_checkpoint_it_says_what_to_give(self, tmp_path):
        with pytest.raises(CheckpointError, match="holds no checkpoint; give --logdir"):
            evaluator.main(CONFIG, checkpoint_dir=tmp_path)


# Ps 0 counts as lost after three polls without an answer.
STAYS = [lambda _: None] * 2


class TestEvaluator:
    """The evaluator with a fake ps 0, and a stop request whose waits let the chief continue."""

    @pytest.fixture
    def evaluate_until_end(self, tmp_path, monkeypatch):
        config = dataclasses.replace(CONFIG, logdir=str(tmp_path))

        def run(*chief_acts, config=config):
            """Runs the evaluator; at each of its polls the chief acts once."""
            ps_0 = FakeControl(run=ready_run())
            remaining = list(chief_acts)
            monkeypatch.setattr(evaluator.preflight, "wait_for_ps", lambda *_: [ps_0])

            class Stop(StopRequest):
                def wait(self, seconds):
                    assert remaining, "the evaluator still waits after the chief's last act"
                    remaining.pop(0)(ps_0)
                    return False

            cluster = ClusterConfig(jobs={"ps": ("h:1",), "worker": ("h:2",)}, job_name="evaluator", task_index=0)
            code = evaluator.EvaluatorTask(cluster, config, components_lib.load(config, 1)).work(Stop())
            assert not remaining
            records = (tmp_path / "metrics" / "evaluator-0.jsonl").read_text().splitlines()
            return code, [r for r in map(json.loads, records) if r["kind"] == "eval"]

        run.logdir = tmp_path
        return run

    def save(self, logdir, step):
        writer.write(logdir / "checkpoints", step, values_of(step) | {"global_step": np.int64(step)})

    def test_evaluates_every_checkpoint_once_and_the_last_one(self, evaluate_until_end):
        logdir = evaluate_until_end.logdir

        def says(status):
            return lambda ps_0: ps_0.fields.update(roster=roster("r", w0=status))

        def saves_and_is_done(ps_0):
            self.save(logdir, 9)
            says("done")(ps_0)

        code, records = evaluate_until_end(
            says("joined"), lambda _: self.save(logdir, 5), lambda _: None, saves_and_is_done
        )
        assert code == 0
        assert [record["global_step"] for record in records] == [5, 9]
        for record in records:
            assert_metrics(record["metrics"], expected(values_of(record["global_step"])))

    def test_a_damaged_checkpoint_is_skipped_and_evaluated_once_it_is_rewritten(self, evaluate_until_end):
        logdir = evaluate_until_end.logdir
        self.save(logdir, 5)
        self.save(logdir, 7)
        damaged = logdir / "checkpoints" / "model.ckpt-7.data-00000-of-00001"
        damaged.write_bytes(damaged.read_bytes()[:-1])

        def goes_on_and_is_done(ps_0):
            self.save(logdir, 7)
            ps_0.fields.update(roster=roster("r", w0="done"))

        with log_lines() as logged:
            code, records = evaluate_until_end(
                lambda ps_0: ps_0.fields.update(roster=roster("r", w0="joined")), lambda _: None, goes_on_and_is_done
            )
        assert code == 0
        assert [record["global_step"] for record in records] == [5, 7]
        (warning,) = [line for line in logged if "it is not evaluated" in line]
        assert "model.ckpt-7" in warning and "its data file is truncated" in warning

    @pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
    def test_a_failed_chief_is_reported(self, evaluate_until_end, status):
        with pytest.raises(PeerFailedError, match=f"the chief {status}"):
            evaluate_until_end(lambda ps_0: ps_0.fields.update(roster=roster("r", w0=status)))

    def test_a_run_that_ended_earlier_is_not_the_expected_one(self, evaluate_until_end):
        def new_run(ps_0):
            ps_0.fields.update(run=ready_run(run_id="r2"), roster=roster("r", w0="failed"))

        code, _ = evaluate_until_end(new_run, lambda ps_0: ps_0.fields.update(roster=roster("r2", w0="done")))
        assert code == 0

    @pytest.mark.parametrize("status", [Status.JOINED, Status.TRAINING])
    def test_a_ps_that_ends_before_the_chief_is_lost(self, evaluate_until_end, status):
        def goes(ps_0):
            ps_0.error = GONE

        with pytest.raises(PsLostError):
            evaluate_until_end(lambda ps_0: ps_0.fields.update(roster=roster("r", w0=status)), goes, *STAYS)

    @pytest.mark.parametrize("status", [Status.JOINED, Status.TRAINING])
    def test_a_ps_that_ends_after_the_chief_ends_the_evaluator(self, evaluate_until_end, status):
        def goes(ps_0):
            (evaluate_until_end.logdir / "summary.json").write_text("{}")
            ps_0.error = GONE

        code, _ = evaluate_until_end(lambda ps_0: ps_0.fields.update(roster=roster("r", w0=status)), goes, *STAYS)
        assert code == 0

    def test_a_ps_that_misses_a_poll_is_not_lost(self, evaluate_until_end):
        def goes(ps_0):
            ps_0.error = GONE

        def is_back(ps_0):
            ps_0.error = None
            ps_0.fields.update(roster=roster("r", w0="done"))

        code, _ = evaluate_until_end(
            lambda ps_0: ps_0.fields.update(roster=roster("r", w0="training")), goes, STAYS[0], is_back
        )
        assert code == 0

    def test_no_checkpoint_for_long_is_an_error(self, evaluate_until_end):
        config = dataclasses.replace(CONFIG, logdir=str(evaluate_until_end.logdir), stall_timeout_secs=1e-9)
        with pytest.raises(StalledError, match="is it the chief's --logdir"):
            evaluate_until_end(config=config)

    def test_needs_a_logdir(self):
        cluster = ClusterConfig(jobs={"ps": ("h:1",), "worker": ("h:2",)}, job_name="evaluator", task_index=0)
        with pytest.raises(OptionError, match="give it the chief's --logdir"):
            evaluator.EvaluatorTask(cluster, CONFIG, components_lib.load(CONFIG, 1))
