"""A parameter-server script as in the tutorials of 2017: a small network, asynchronous or synchronous."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import train

tf.disable_v2_behavior()


def batches(task_index, size=32):
    """Endless batches of points in 64 dimensions, labelled by which of ten centres is near."""
    centres = np.random.RandomState(0).normal(size=(10, 64)).astype(np.float32)
    random = np.random.RandomState(1 + task_index)
    while True:
        labels = random.randint(10, size=size)
        noise = random.normal(scale=1.5, size=(size, 64)).astype(np.float32)
        yield centres[labels] + noise, labels


def network(images):
    """Logits of one hidden layer."""
    hid_w = tf.Variable(tf.truncated_normal([64, 100], stddev=0.1, seed=1), name="hid_w")
    hid_b = tf.Variable(tf.zeros([100]), name="hid_b")
    sm_w = tf.Variable(tf.truncated_normal([100, 10], stddev=0.1, seed=2), name="sm_w")
    sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
    return tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(images, hid_w, hid_b)), sm_w, sm_b)


def main():
    """Runs one task of the cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--train_steps", type=int, default=200)
    parser.add_argument("--sync_replicas", action="store_true")
    parser.add_argument("--replicas_to_aggregate", type=int)
    parser.add_argument("--checkpoint_dir")
    parser.add_argument("--save_steps", type=int, default=100)
    flags = parser.parse_args()

    cluster = train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
        return

    is_chief = flags.task_index == 0
    worker = f"/job:worker/task:{flags.task_index}"
    with tf.device(train.replica_device_setter(worker_device=worker, cluster=cluster)):
        global_step = train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, [None, 64])
        labels = tf.placeholder(tf.int64, [None])
        logits = network(images)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=labels))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        optimizer = train.AdamOptimizer(0.01)
        hooks = [train.StopAtStepHook(last_step=flags.train_steps)]
        if flags.sync_replicas:
            num_workers = cluster.num_tasks("worker")
            required = flags.replicas_to_aggregate or num_workers
            optimizer = train.SyncReplicasOptimizer(optimizer, required, total_num_replicas=num_workers)
        train_op = optimizer.minimize(loss, global_step=global_step)
        if flags.sync_replicas:
            hooks.append(optimizer.make_session_run_hook(is_chief))

    local_step = 0
    data = batches(flags.task_index)
    with train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        checkpoint_dir=flags.checkpoint_dir,
        hooks=hooks,
        save_checkpoint_steps=flags.save_steps,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as session:
        while not session.should_stop():
            points, numbers = next(data)
            _, step, right = session.run([train_op, global_step, accuracy], {images: points, labels: numbers})
            local_step += 1
            if local_step == 1 or local_step % 50 == 0:
                print(f"worker {flags.task_index}: {local_step} local steps, global step {step}, {right:.2f}")
    print(f"worker {flags.task_index} is done: {local_step} local steps")


if __name__ == "__main__":
    main()
