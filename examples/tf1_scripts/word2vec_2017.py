"""word2vec with `nce_loss` on parameter servers, as in the scripts of 2017: sparse gradients, feed_dict, Supervisor."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import train

tf.disable_v2_behavior()

NUM_WORDS, DIMENSION, NUM_SAMPLED = 2000, 32, 16


def pairs(task_index, size=64):
    """Endless batches of (word, word beside it); the words of a group of ten occur together."""
    random = np.random.RandomState(task_index)
    while True:
        words = random.zipf(1.3, size=size) % NUM_WORDS
        yield words, (words // 10 * 10 + random.randint(10, size=size))[:, None] % NUM_WORDS


def main():
    """Runs one task of the cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--train_steps", type=int, default=200)
    parser.add_argument("--sync_replicas", action="store_true")
    parser.add_argument("--checkpoint_dir")
    flags = parser.parse_args()

    cluster = train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
        return

    is_chief = flags.task_index == 0
    worker = f"/job:worker/task:{flags.task_index}"
    with tf.device(train.replica_device_setter(worker_device=worker, cluster=cluster)):
        global_step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False)
        words = tf.placeholder(tf.int64, [None])
        contexts = tf.placeholder(tf.int64, [None, 1])
        embeddings = tf.get_variable("embeddings", [NUM_WORDS, DIMENSION])
        nce_weights = tf.get_variable("nce_weights", [NUM_WORDS, DIMENSION])
        nce_biases = tf.get_variable("nce_biases", [NUM_WORDS], initializer=tf.zeros_initializer())
        inputs = tf.nn.embedding_lookup(embeddings, words)
        losses = tf.nn.nce_loss(nce_weights, nce_biases, contexts, inputs, NUM_SAMPLED, NUM_WORDS)
        loss = tf.reduce_mean(losses)
        optimizer = train.GradientDescentOptimizer(0.5)
        if flags.sync_replicas:
            num_workers = cluster.num_tasks("worker")
            optimizer = train.SyncReplicasOptimizer(optimizer, num_workers, total_num_replicas=num_workers)
        train_op = optimizer.minimize(loss, global_step=global_step)
        init_op = tf.global_variables_initializer()
        if flags.sync_replicas and is_chief:
            tokens_op, queue_runner = optimizer.get_init_tokens_op(), optimizer.get_chief_queue_runner()

    local = {}
    if flags.sync_replicas:
        local_init_op = optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
        local = {"local_init_op": local_init_op, "ready_for_local_init_op": optimizer.ready_for_local_init_op}
    supervisor = train.Supervisor(
        is_chief=is_chief,
        logdir=flags.checkpoint_dir,
        init_op=init_op,
        global_step=global_step,
        summary_op=None,
        recovery_wait_secs=1,
        save_model_secs=60,
        **local,
    )
    filters = ["/job:ps", worker]
    session = supervisor.prepare_or_wait_for_session(server.target, tf.ConfigProto(device_filters=filters))
    if flags.sync_replicas and is_chief:
        session.run(tokens_op)
        supervisor.start_queue_runners(session, [queue_runner])
    data = pairs(flags.task_index)
    step = local_step = 0
    while not supervisor.should_stop() and step < flags.train_steps:
        batch, beside = next(data)
        _, value, step = session.run([train_op, loss, global_step], {words: batch, contexts: beside})
        local_step += 1
        if local_step % 50 == 0:
            print(f"worker {flags.task_index}: {local_step} local steps, global step {step}, loss {value:.3f}")
    print(f"worker {flags.task_index} is done at global step {step}, loss {value:.3f}")
    supervisor.stop()


if __name__ == "__main__":
    main()
