"""Bad options of components, and contradicting components: the command rejects them before a server starts."""

from __future__ import annotations

import pytest

from ps_trainer.cli import task

pytestmark = pytest.mark.usefixtures("without_server")

# Flags of one of two workers -> the words of the message.
OPTIONS = {
    "--model_option=hiden=3 --model=mlp": "unknown key 'hiden'; did you mean hidden?",
    "--model_option=hidden": "--model_option 'hidden': write key=value; keys: num_classes (default 10)",
    "--model_option==3": "unknown key ''",
    "--model_option=hidden=x --model=mlp": "--model_option hidden=x: 'x' is not of type int",
    "--model_option=hidden=0 --model=mlp": "hidden=0: each value of hidden must be at least 1",
    "--model_option=dropout=2 --model=mlp": "dropout=2: dropout must be at least 0 and below 1",
    "--model_option=num_classes=0": "num_classes=0: num_classes must be at least 2",
    "--model_option=num_classes=5": "dataset 'digits' has 10 classes, model 'softmax' only 5",
    "--model=lstm_lm --model_option=vocab_size=5 --dataset=markov --dataset_option=num_train=500": (
        "dataset 'markov' has 11 ids, model 'lstm_lm' only 5; set --model_option vocab_size=11"
    ),
    "--model_option=num_classes=10 --model_option=num_classes=11": "'num_classes' is given twice; give it once",
    "--model=no_such_module:Model": "--model=no_such_module:Model: no module named 'no_such_module' on the Python path",
    "--model=json:NoSuch": "has no class 'NoSuch'",
    "--model=json:loads": "--model=json:loads: loads is not a model: it has no method `build`",
    "--model=tests.bad_input.conftest:Started": "Started is not a model: it has no method `build`",
    "--dataset=json:JSONDecoder": "JSONDecoder is not a dataset: it has no method `train`",
    "--update=json:JSONDecoder": "JSONDecoder is not an update rule: it has no method `build`",
    "--optimizer=json:JSONDecoder": "JSONDecoder is not an optimizer: it has no method `create`",
    "--schedule=json:JSONDecoder": "JSONDecoder is not a learning-rate schedule: it has no method `build`",
    "--layout=json:JSONDecoder": "JSONDecoder is not a store layout: it has no method `create`",
    "--gradient_transform=json:JSONDecoder": "JSONDecoder is not a gradient transform; derive it from",
    "--straggler=json:JSONDecoder": "JSONDecoder is not a distribution; derive it from",
    "--hook=json:JSONDecoder": "JSONDecoder is not a hook: it has no method `before_run`",
    "--hook=json:NoSuch": "has no class 'NoSuch'",
    "--update_option=staleness=3": "--update_option staleness=3: update rule 'async' takes no options",
    "--update=ssp --update_option=staleness=-1": "staleness=-1: staleness must be at least 0",
    "--update=drop_stale --update_option=staleness=-1": "staleness=-1: staleness must be at least 0",
    "--update=backup --update_option=backup_workers=2": "backup_workers=2 leaves none of num_workers=2 to wait",
    "--update=sync --update_option=replicas_to_aggregate=5": "replicas_to_aggregate=5 exceeds num_workers=2",
    "--update=sync --update_option=min_workers=3": "min_workers=3",
    "--update=softsync --update_option=splits=3": "splits=3 exceeds num_workers=2",
    "--update=k_sync --update_option=k=3": "exceeds num_workers=2",
    "--update=k_async --update_option=k=0": "k=0: k must be at least 1",
    "--update=easgd --update_option=alpha=2": "alpha=2: alpha must be at least 0 and at most 1",
    "--update=easgd --update_option=alpha=.5 --update_option=beta=.5": "give one of them",
    "--update=easgd --optimizer=adam": "--optimizer=adam",
    "--update=local_sgd --update_option=period=0": "period=0: period must be at least 1",
    "--update=accumulate --update_option=steps=0": "steps=0: steps must be at least 1",
    "--update=accumulate --update_option=rule=ssp": "rule=ssp: rule must be one of async, sync",
    "--update=downpour --update_option=n_push=0": "n_push=0: n_push must be at least 1",
    "--update=hogwild --optimizer=adam": "--update=hogwild changes single rows without lock",
    "--update=hybrid": "--update=hybrid is for models with embedding tables, and model 'softmax' has none",
    "--update=all_reduce --gradient_transform=top_k": "ring and cannot add compressed ones",
    "--update=all_reduce --pull_dtype=float16": "--pull_dtype=float16 has no effect: under --update=all_reduce workers",
    "--update=all_reduce --update_option=fusion_bytes=0": "fusion_bytes=0: fusion_bytes must be at least 1",
    "--update=dc_asgd --update_option=lambda=-1": "lambda=-1: lambda must be at least 0",
    "--gradient_transform=top_k:ratio=0": "ratio=0: ratio must be above 0 and at most 1",
    "--gradient_transform=top_k:0.1": "unknown gradient transform; did you mean top_k?",
    "--gradient_transform=top_k:ratio=nan": "ratio=nan: ratio must be above 0 and at most 1 and finite",
    "--gradient_transform=sign:scale=true": "unknown key 'scale'; did you mean scaled?",
    "--gradient_transform=clip_norm:norm=inf": "norm=inf: norm must be above 0 and finite",
    "--gradient_transform=qsgd:levels=128": "levels=128: levels must be at least 1 and at most 127",
    "--gradient_transform=cast:dtype=int8": "dtype=int8: dtype must be one of bfloat16, float16",
    "--gradient_transform=top_k --gradient_transform=clip_norm": "clip_norm comes after top_k; put it before",
    "--gradient_transform=top_k --gradient_transform=random_k": "top_k and random_k cannot be combined",
    "--gradient_transform=error_feedback": "error_feedback has no loss to compensate for",
    "--gradient_transform=dgc --optimizer=momentum": "keeps the momentum on the worker",
    "--optimizer=momentum --optimizer_option=momentum=1": "momentum=1: momentum must be at least 0 and below 1",
    "--optimizer=adam --optimizer_option=beta1=-1": "beta1=-1: beta1 must be at least 0 and below 1",
    "--optimizer=adam --optimizer_option=epsilon=0": "epsilon=0: epsilon must be above 0",
    "--optimizer_option=momentum=0.9": "--optimizer_option momentum=0.9: unknown key 'momentum'; keys: none",
    "--schedule=piecewise --schedule_option=factors=1": "factors=1.0 has 1 values, but boundaries=500,750 cut",
    "--schedule=piecewise --schedule_option=boundaries=7,5": "boundaries=7,5 must increase",
    "--schedule=cosine --schedule_option=decay_steps=0": "decay_steps=0: decay_steps must be at least 1",
    "--schedule_option=warmup_steps=-1": "warmup_steps=-1: warmup_steps must be at least 0",
    "--layout=per_variable --layout_option=placement=random": "placement=random: placement must be one of",
    "--layout_option=max_piece_bytes=1": "max_piece_bytes=1: max_piece_bytes must be at least 4096",
    "--layout_option=least_share_bytes=9": "least_share_bytes=9 has no effect, because the workers hold no parameters",
    "--straggler=exp:worker=2": "--straggler exp:worker=2: worker 2 does not exist with num_workers=2",
    "--dataset=synthetic --dataset_option=height=0": "height=0: height must be at least 1",
    "--dataset=synthetic --dataset_option=num_train=99999999999": "but at most",
    "--dataset=synthetic --dataset_option=seed=-1": "seed=-1: seed must be at least 0 and below 4294967296",
    "--dataset=synthetic --dataset_option=teacher=tree": "teacher=tree: teacher must be one of linear, mlp",
    "--dataset_option=height=9": "unknown key 'height'",
    "--dataset=mnist": "--data_dir is not given; dataset mnist needs --data_dir=<folder> with four files",
    "--dataset=mnist --data_dir=/no/such": "--data_dir=/no/such is not a folder",
    "--batch_size=1438": "batch_size=1438 exceeds the 719 training examples of worker 0",
    "--logdir=/dev/null": "--logdir=/dev/null cannot be used: /dev/null is not a folder",
    "--logdir=/dev/null/x": "/dev/null is not a folder; give another --logdir",
}


@pytest.mark.parametrize("flags", OPTIONS)
def test_options(refuse, flags):
    given = [] if "--model=" in flags else ["--model=softmax"]
    hosts = ["--ps_hosts=p:1", "--worker_hosts=w:1,v:1", "--task_index=0"]
    refuse(task.main_worker, [*hosts, *given, *flags.split(" ")], OPTIONS[flags])
