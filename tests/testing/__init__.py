"""Helpers that tests of several folders use; a test that needs a cluster or processes begins here.

Clusters in the test's own process:

    cluster             servers, and each task's code in a thread
    script              a scripted order of pushes on such a cluster: which worker's gradient arrives when
    conformance         the runs that the conformance suite of the update rules checks
    rule_promises       the promises of each update rule, for that suite
    marked_gradients    runs of averaging rules whose parameters tell which gradients are in which update
    marked_process      one worker's process in such a run; it may be killed in a step
    gradient_groups     rules with groups of gradients: their NumPy form, and their steps in scripted order
    two_ps              gradient groups on two ps tasks; a worker may be killed between its visits to them
    replicas            a worker's graph of a rule with replicas, and the partitions of each phase

Real processes:

    processes           the tasks of a cluster: a test starts, kills and freezes them (`Task.kill`)
    live_values         variables of a run, read on its ps tasks while it trains
    user_scripts        a user's TF1 scripts, forked from a process that has imported TensorFlow

Oracles in NumPy, and what they are compared on:

    components          small models and datasets
    plain_loop          the training loop of one machine, without any part of the runtime
    oracles             models and plain rules
    oracles_local       rules that train a replica on each worker
    oracles_gradients   gradient transforms
    gradients           a model's gradients against difference quotients

Files of a run:

    step_records        lines of a step log

Pytest itself:

    kinds               the kind of a test: light, cluster or process
    order               the order of the test files of a session
    repetitions         which combinations of parameters a run of the tests has
    logs                the messages that absl logs
"""
