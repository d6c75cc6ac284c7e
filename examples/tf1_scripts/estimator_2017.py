"""A program in the form of an Estimator, on parameter servers: TF_CONFIG, input_fn, model_fn, a loop over ModeKeys.

TensorFlow no longer contains `tf.estimator`. Programs that used it kept their `model_fn` and `input_fn`, and drive
them by a short loop like this one.
"""

import argparse
import collections
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import train

tf.disable_v2_behavior()

EstimatorSpec = collections.namedtuple("EstimatorSpec", "loss train_op eval_metric_ops")


def input_fn(task_index, batch_size):
    """Features and labels of a linear problem, by `tf.data`."""
    random = np.random.RandomState(task_index)
    x = random.normal(size=(4096, 16)).astype(np.float32)
    y = (x @ np.linspace(-1, 1, 16) > 0).astype(np.int64)
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, y)).shuffle(4096, seed=0).repeat().batch(batch_size)
    return tf.data.make_one_shot_iterator(data).get_next()


def model_fn(features, labels, params):
    """A linear classifier."""
    logits = linear(features["x"])
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    step = train.get_global_step()
    optimizer = train.FtrlOptimizer(params["learning_rate"])
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return EstimatorSpec(loss, optimizer.minimize(loss, global_step=step), {"accuracy": accuracy})


def linear(inputs):
    """A layer with two outputs."""
    kernel = tf.get_variable("kernel", [16, 2], initializer=tf.zeros_initializer())
    return inputs @ kernel + tf.get_variable("bias", [2], initializer=tf.zeros_initializer())


def main():
    """Runs the task that TF_CONFIG names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir")
    parser.add_argument("--train_steps", type=int, default=200)
    flags = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = train.Server(config["cluster"], job_name=job, task_index=index)
    if job == "ps":
        server.join()
        return

    is_chief = job == "chief"
    setter = train.replica_device_setter(worker_device=f"/job:{job}/task:{index}", cluster=config["cluster"])
    with tf.device(setter):
        train.get_or_create_global_step()
        with tf.device(f"/job:{job}/task:{index}"):
            features, labels = input_fn(index + (not is_chief), batch_size=64)
        spec = model_fn(features, labels, {"learning_rate": 0.1})
    hooks = [
        train.StopAtStepHook(last_step=flags.train_steps),
        train.NanTensorHook(spec.loss),
        train.LoggingTensorHook({"loss": spec.loss, **spec.eval_metric_ops}, every_n_iter=100),
    ]
    local_step = 0
    with train.MonitoredTrainingSession(
        server.target, is_chief, flags.model_dir, hooks=hooks, save_checkpoint_steps=100
    ) as session:
        while not session.should_stop():
            _, accuracy = session.run([spec.train_op, spec.eval_metric_ops["accuracy"]])
            local_step += 1
            if local_step % 50 == 0:
                print(f"{job} {index}: {local_step} local steps, accuracy {accuracy:.2f}")
    print(f"{job} {index} is done: accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
