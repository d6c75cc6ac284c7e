"""The table of help groups: under which heading the help of a command shows a flag, and whether `--help` shows it.

Flags of the same name mean the same in every command, so one table serves all commands. The order in the table is the
order in the help.
"""

from __future__ import annotations

from typing import NamedTuple


class HelpGroup(NamedTuple):
    """Flags below one heading.

    Attributes:
        title: Heading.
        common: Names of the flags that `--help` shows, unless the command chooses its own.
        further: Names of the flags that only `--helpfull` shows.
    """

    title: str
    common: tuple[str, ...]
    further: tuple[str, ...]


GROUPS = (
    HelpGroup(
        "Cluster",
        (
            *("num_ps", "num_workers", "num_evaluators"),
            *("ps_hosts", "worker_hosts", "job_name", "task_index", "cluster_file", "alone"),
            *("compute", "backup_workers"),
        ),
        (
            *("chief_hosts", "keep_serving", "hosts", "rate", "ps_rate", "worker_rate", "isolation"),
            *("colocated", "model_bytes", "worker_bytes_per_sec", "ps_bytes_per_sec", "latency_secs", "ps_secs"),
            "start_secs",
            *("placement", "devices_per_worker", "steps_per_call"),
            *("intra_op_threads", "inter_op_threads", "grappler", "preload"),
        ),
    ),
    HelpGroup("Model", ("model", "model_option", "preset"), ("init_from", "hook")),
    HelpGroup(
        "Endpoint", ("host", "port", "name", "reload_secs", "deadline_secs", "max_body_bytes", "max_connections"), ()
    ),
    HelpGroup(
        "Words",
        (
            *("prompt", "length", "temperature", "top_k", "beam_size", "length_penalty"),
            *("count", "table", "vocabulary"),
        ),
        (),
    ),
    HelpGroup(
        "Data",
        ("dataset", "dataset_option", "data_dir", "batch_size", "input", "option", "all"),
        ("sharding", "shard_examples", "eval_examples", "seed"),
    ),
    HelpGroup(
        "Length",
        ("max_steps", "target_metric", "max_updates", "quick"),
        ("num_epochs", "seeds"),
    ),
    HelpGroup(
        "Update rule and optimizer",
        ("update", "update_option", "optimizer", "optimizer_option", "learning_rate"),
        (
            *("schedule", "schedule_option", "optimizer_for", "gradient_transform", "pull_dtype"),
            *("layout", "layout_option"),
        ),
    ),
    HelpGroup(
        "Checkpoints",
        ("logdir", "checkpoint_dir", "save_checkpoint_secs"),
        ("save_checkpoint_steps", "keep_checkpoints", "max_failed_saves"),
    ),
    HelpGroup(
        "Failures",
        ("max_restarts", "fault", "straggler"),
        (
            *("start_timeout_secs", "join_wait_secs", "stall_timeout_secs"),
            *("heartbeat_timeout_secs", "watch_secs", "recover_timeout_secs"),
        ),
    ),
    HelpGroup(
        "Output",
        ("out", "out_dir", "format", "check", "step_log"),
        ("report_secs", "evaluate_every", "steps", "keep_runs", "plain"),
    ),
)

# Flags whose value is a file or a folder.
PATHS = frozenset(
    ("cluster_file", "data_dir", "input", "init_from", "logdir", "checkpoint_dir", "out", "out_dir", "flagfile")
)
