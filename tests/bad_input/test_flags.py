"""Bad flags of every command: exit code 2, and a message that names the flag; TensorFlow is not imported."""

from __future__ import annotations

import pytest

from ps_trainer.cli import checkpoint, data, doctor, evaluate, experiment, listing, local, main, simulate, task

pytestmark = pytest.mark.usefixtures("without_tensorflow")

HOSTS = ("--ps_hosts=p:1", "--worker_hosts=w:1")

# A flag of a worker -> the words of the message.
WORKER = {
    "--batch_size=0": "--batch_size=0: batch_size must be at least 1",
    "--batch_size=-1": "--batch_size=-1: batch_size must be at least 1",
    "--batch_size=1e3": "--batch_size: '1e3' is not of type int",
    "--batch_size=": "--batch_size: '' is not of type int",
    "--batch_size=0x10": "--batch_size: '0x10' is not of type int",
    "--batch_size": "Missing value for flag --batch_size",
    "--batch_size==3": "--batch_size: '=3' is not of type int",
    "--batch_size 3": "unknown flag --batch_size 3; did you mean --batch_size?",
    "--batch-size=3": "unknown flag --batch-size; did you mean --batch_size?",
    "--Batch_size=3": "unknown flag --Batch_size; did you mean --batch_size?",
    "---batch_size=3": "unknown flag ---batch_size; did you mean --batch_size?",
    f"--batch_size={'9' * 30}": "batch_size must be at least 1 and at most 9223372036854775807",
    f"--batch_size={'9' * 5000}": "is not of type int",
    f"--{'x' * 5000}=1": f"unknown flag --{'x' * 5000}; --helpfull lists all",
    "--max_steps=0": "--max_steps=0: max_steps must be at least 1",
    "--max_steps=1.5": "--max_steps: '1.5' is not of type int",
    "--max_steps=none": "--max_steps=none and --num_epochs=none: the run would never end",
    "--max_steps=9223372036854775808": "max_steps must be at least 1 and at most 9223372036854775807",
    "--nomax_steps": "unknown flag --nomax_steps; did you mean --max_steps?",
    "--target_metric=accuracy": "--target_metric=accuracy: write a metric, >= or <=, and a number",
    "--target_metric=accuracy>0.9": "--target_metric=accuracy>0.9: write a metric, >= or <=, and a number",
    "--target_metric=>=0.9": "--target_metric=>=0.9: write a metric, >= or <=, and a number",
    "--target_metric=loss<=nan": "--target_metric=loss<=nan: write a metric, >= or <=, and a number",
    "--num_epochs=0": "--num_epochs=0: num_epochs must be at least 1",
    "--learning_rate=0": "--learning_rate=0.0: learning_rate must be above 0",
    "--learning_rate=-0.1": "--learning_rate=-0.1: learning_rate must be above 0",
    "--learning_rate=nan": "--learning_rate=nan: learning_rate must be above 0 and finite",
    "--learning_rate=inf": "--learning_rate=inf: learning_rate must be above 0 and finite",
    "--learning_rate=1e400": "--learning_rate=inf: learning_rate must be above 0 and finite",
    "--learning_rate=0,1": "--learning_rate: '0,1' is not of type float",
    "--seed=-1": "--seed=-1: seed must be at least 0",
    "--seed=18446744073709551616": "seed must be at least 0 and at most 9223372036854775807",
    "--save_checkpoint_secs=-1": "--save_checkpoint_secs=-1.0: save_checkpoint_secs must be at least 0",
    "--save_checkpoint_secs=nan": "--save_checkpoint_secs=nan: save_checkpoint_secs must be at least 0 and finite",
    "--save_checkpoint_secs=1m": "--save_checkpoint_secs: '1m' is not of type float",
    "--save_checkpoint_steps=-5": "--save_checkpoint_steps=-5: save_checkpoint_steps must be at least 0",
    "--keep_checkpoints=0": "--keep_checkpoints=0: keep_checkpoints must be at least 1",
    "--report_secs=0": "--report_secs=0.0: report_secs must be above 0",
    "--start_timeout_secs=0": "--start_timeout_secs=0.0: start_timeout_secs must be above 0",
    "--start_timeout_secs=inf": "--start_timeout_secs=inf: start_timeout_secs must be above 0 and finite",
    "--start_timeout_secs=never": "--start_timeout_secs: 'never' is not of type float",
    "--join_wait_secs=-1": "--join_wait_secs=-1.0: join_wait_secs must be at least 0",
    "--stall_timeout_secs=inf": "--stall_timeout_secs=inf: stall_timeout_secs must be above 0 and finite",
    "--intra_op_threads=-1": "--intra_op_threads=-1: intra_op_threads must be at least 0 and at most 4096",
    "--inter_op_threads=99999999999": "inter_op_threads must be at least 0 and at most 4096",
    "--model=cmn": "--model=cmn: unknown model; did you mean cnn? known: softmax, mlp, lenet, cnn, vgg, ",
    "--model=": "--model=: unknown model; known: softmax",
    "--model=a:b:c": "--model=a:b:c: unknown model",
    "--model=pkg:": "give your own class as package.module:Class",
    "--dataset=digit": "--dataset=digit: unknown dataset; did you mean digits?",
    "--update=asink": "--update=asink: unknown update rule; did you mean async?",
    "--update=sync,async": "--update=sync,async: unknown update rule",
    "--optimizer=Adam": "--optimizer=Adam: unknown optimizer; did you mean adam?",
    "--schedule=cos": "--schedule=cos: unknown learning-rate schedule; did you mean cosine?",
    "--layout=pack": "--layout=pack: unknown store layout; did you mean packed?",
    "--gradient_transform=topk": "--gradient_transform=topk: unknown gradient transform; did you mean top_k?",
    "--gradient_transform=:": "--gradient_transform=: unknown gradient transform",
    "--pull_dtype=fp16": "did you mean float16? pull_dtype must be one of float32, bfloat16, float16",
    "--placement=model": "did you mean model_parallel? placement must be one of data_parallel, model_parallel",
    "--straggler=expo": "--straggler=expo: unknown delay distribution; did you mean exp?",
    "--hook=nothing": "--hook=nothing: unknown hook; known: none; give your own class as",
    "--step_log=maybe": "--step_log: 'maybe' is not a bool; write true or false",
    "--no_step_log": "unknown flag --no_step_log; did you mean --step_log?",
    "--nostep_log=false": "--nostep_log=false does not take an argument",
    "--unknown=1": "unknown flag --unknown; --helpfull lists all",
    "--keep_serving": "unknown flag --keep_serving",
    "extra": "'extra' is not a flag; write every argument as --name=value",
    "-": "'-' is not a flag",
    "": "'' is not a flag",
    "--=5": "'--=5' is not a flag",
    "--flagfile=/no/such": "--flagfile cannot be read: [Errno 2] No such file or directory: '/no/such'",
    "--flagfile=/": "--flagfile cannot be read: [Errno 21] Is a directory",
    "--flagfile": "--flagfile with no argument",
    "--job_name=WORKER": "--job_name='WORKER': unknown job; allowed are ps, worker, chief, evaluator",
    "--job_name=": "--job_name='': unknown job",
    "--job_name=master": "--job_name=chief: the cluster has no job 'chief', only ps, worker",
    "--job_name=ps": "--job_name=ps, but this command runs only worker or chief or evaluator; use run_ps.py",
    "--task_index=1": "--task_index=1 is out of range: worker has 1 address(es) (w:1); allowed are 0..0",
    "--task_index=-1": "--task_index=-1 is negative; tasks count from 0",
    "--task_index=one": "--task_index: 'one' is not of type int",
    "--task_index=1.0": "--task_index: '1.0' is not of type int",
    "--chief_hosts=c:1,d:1": "--chief_hosts has 2 addresses; a cluster has one chief",
    "--chief_hosts=p:1": "--chief_hosts[0]='p:1' is the same address as --ps_hosts[0]='p:1'",
}


@pytest.mark.parametrize("flag", WORKER, ids=lambda flag: flag[:40])
def test_worker(refuse, flag):
    refuse(task.main_worker, [*HOSTS, flag], WORKER[flag])


TASKS = [
    (task.main_worker, [], "the cluster is not described; give --ps_hosts=localhost:2222 --worker_hosts="),
    (task.main_worker, ["--ps_hosts=p:1"], "--worker_hosts is missing"),
    (task.main_worker, ["--worker_hosts=w:1"], "--ps_hosts is missing"),
    (task.main_worker, ["--ps_hosts=p:1", "--worker_hosts=w:1,v:1"], "--task_index is missing: the job worker has 2"),
    (task.main_ps, [*HOSTS, "--job_name=worker"], "--job_name=worker, but this command runs only ps"),
    (task.main_ps, [*HOSTS, "--task_index=3"], "--task_index=3 is out of range: ps has 1 address(es)"),
    (task.main_ps, [*HOSTS, "--keep_serving=perhaps"], "--keep_serving: 'perhaps' is not a bool"),
    (task.main_task, [*HOSTS], "--job_name is missing; give one of ps"),
    (task.main_task, ["--alone", "--job_name=ps"], "one process trains as worker 0; remove --job_name, or --alone"),
    (task.main_task, ["--alone", "--task_index=1"], "one process trains as worker 0; remove --task_index"),
    (task.main_task, ["--alone", *HOSTS], "one process has no cluster; remove --ps_hosts, --worker_hosts, or --alone"),
    (task.main_task, ["--alone", "--sharding=dynamic"], "use --sharding=static"),
    (doctor.main_doctor, [], "the cluster is not described"),
    (doctor.main_doctor, [*HOSTS, "--num_ps=2"], "unknown flag --num_ps"),
    (task.main_worker, [*HOSTS, "--placement=colocated"], "so --ps_hosts must not be given; remove it, or --placement"),
    (
        task.main_worker,
        HOSTS[1:],
        "--ps_hosts is missing; give the address of at least one ps task, or --placement=col",
    ),
    (task.main_ps, [*HOSTS[1:], "--placement=colocated"], "there is no ps task; start the workers only"),
    (
        task.main_task,
        ["--alone", "--placement=colocated"],
        "its workers are tasks of a cluster, and one process has none",
    ),
    (doctor.main_doctor, [*HOSTS, "--job_name=gpu"], "--job_name='gpu': unknown job"),
]


@pytest.mark.parametrize(("command", "args", "words"), TASKS)
def test_task(refuse, command, args, words):
    refuse(command, args, words)


ALONE = "--num_ps=0 --num_workers=1"
LOCAL = {
    "--num_ps=0 --placement=data_parallel": "without ps tasks the workers hold the parameters; give --placement=col",
    "--num_ps=0 --placement=model_parallel": "--num_ps=0 --num_workers=2 --placement=model_parallel: without ps tasks",
    "--num_ps=1 --placement=colocated": "--placement=colocated --num_ps=1: the workers hold the parameters",
    "--placement=colocated --fault=slow_ps:0@step=5": "its workers hold the parameters, so write worker in place of ps",
    "--num_ps=-1": "--num_ps=-1: num_ps must be at least 0 and at most 50000",
    f"{ALONE} --num_evaluators=1": "leave the evaluator out and use --target_metric or `ps_trainer evaluate`",
    f"{ALONE} --sharding=dynamic": "ps task 0 hands out the shards, and one process has none; use --sharding=static",
    f"{ALONE} --update=all_reduce": "one process has no other worker; use --update=sync or async, or --num_ps=1",
    f"{ALONE} --update=hybrid": "one process has no other worker; use --update=sync or async, or --num_ps=1",
    f"{ALONE} --hosts=netns": "--hosts=netns --num_ps=0: one process has no link; remove --hosts",
    f"{ALONE} --fault=kill:ps:0@step=5": "ps 0 does not exist; this cluster has no ps",
    f"{ALONE} --fault=chaos:kills=1,roles=ps": "one process has no ps task; remove ps from roles",
    "--num_workers=-2": "--num_workers=-2: num_workers must be at least 1 and at most 50000",
    "--num_workers=2.5": "--num_workers: '2.5' is not of type int",
    "--num_workers=99999999999": "--num_workers=99999999999: num_workers must be at least 1 and at most 50000",
    "--num_evaluators=2": "--num_evaluators=2: num_evaluators must be one of 0, 1",
    "--hosts=docker": "--hosts=docker: unknown; known: local, netns",
    "--rate=200mbit": "--rate=200mbit needs a link for each task; add --hosts=netns",
    "--hosts=netns --rate=fast": "--rate='fast' is not a rate; write a number with bit, kbit, mbit or gbit",
    "--hosts=netns --rate=0": "--rate='0' is 0 bit/s; allowed are 1mbit..10gbit",
    f"--hosts=netns --rate={'9' * 400}": "allowed are 1mbit..10gbit",
    "--ps_hosts=a:1": "unknown flag --ps_hosts; did you mean --hosts?",
    "--straggler=exp:worker=9": "--straggler exp:worker=9: worker 9 does not exist with num_workers=2",
    "--straggler=exp:mean_ms=-1": "mean_ms=-1: mean_ms must be above 0",
    "--straggler=exp:mean=1": "unknown key 'mean'; did you mean mean_ms?",
    "--straggler=exp:mean_ms": "write options as key=value",
    "--logdir=/dev/null/x": "--logdir=/dev/null/x: cannot make this folder",
    "--max_restarts=-1": "--max_restarts=-1: max_restarts must be at least 0",
    "--fault=kil:worker:1@step=2": "unknown kind 'kil'; did you mean kill?",
    "--fault=kill:worker:9@step=2": "worker 9 does not exist; the worker tasks of this cluster are 0 to 1",
    "--fault=kill:worker:1": "give exactly one of @step=N and @after_secs=N",
    "--fault=kill:worker:1@step=-1": "step=-1: step must be at least 1",
    "--fault=freeze:ps:0@step=5,secs=nan": "secs=nan: secs must be above 0 and finite",
    "--fault=cut:worker:1@step=3,secs=2": "needs a link for each task; add --hosts=netns",
    "--fault=chaos:kills=0": "kills=0: kills must be at least 1",
    "--fault=": "--fault : unknown kind ''; known: kill",
}


@pytest.mark.parametrize("flags", LOCAL, ids=lambda flags: flags[:40])
def test_local(refuse, flags):
    refuse(local.main_local, [*flags.split(" "), "--nopreload"], LOCAL[flags])


SIMULATE = {
    "--num_workers=0": "--num_workers=0: num_workers must be at least 1",
    "--num_ps=0": "--num_ps=0: num_ps must be at least 1",
    "--compute=logn": "--compute=logn: unknown delay distribution; did you mean lognormal?",
    "--compute=lognormal:sigma=x": "'x' is not of type float",
    "--compute=lognormal:sigma=-1": "sigma=-1: sigma must be above 0",
    "--compute=pareto:alpha=0.5": "alpha=0.5: alpha must be above 1",
    "--compute=trace": "trace: missing file; give trace:file=PATH",
    "--compute=trace:file=/no/such": "trace:file=/no/such is not a file",
    "--compute=exp:worker=99": "worker 99 does not exist with num_workers=8",
    "--compute=exp:worker=1": "has no delay for worker 0; give one without worker=",
    "--update=foo": "--update=foo: unknown update rule; known: async, downpour",
    "--update_option=zzz": "--update_option zzz: update rule 'async' takes no options",
    "--backup_workers=9": "--backup_workers=9 of --num_workers=8; give 0 to 7",
    "--backup_workers=1 --update=async": "--update=async has no backup workers",
    "--max_updates=0": "--max_updates=0: max_updates must be at least 1",
    "--model_bytes=-1": "--model_bytes=-1: model_bytes must be at least 0",
    "--worker_bytes_per_sec=nan": "--worker_bytes_per_sec=nan: worker_bytes_per_sec must be above 0",
    "--latency_secs=inf": "--latency_secs=inf: latency_secs must be at least 0 and finite",
    "--ps_secs=nan": "--ps_secs=nan: ps_secs must be at least 0 and finite",
    "--steps": "--steps writes steps.csv into a folder; add --out_dir",
    "--out_dir=/dev/null/x": "--out_dir=/dev/null/x cannot be made: Not a directory",
    "--batch_size=3": "--batch_size is about training, and nothing is trained without --model",
}


@pytest.mark.parametrize("flags", SIMULATE)
def test_simulate(refuse, flags):
    refuse(simulate.main_simulate, flags.split(" "), SIMULATE[flags])


OTHERS = [
    (main.main, ["locl"], "unknown command 'locl'; did you mean local?"),
    (main.main, ["--help=1"], "unknown command '--help=1'"),
    (checkpoint.main_checkpoint, [], "checkpoint: missing action; choose from info, verify, plan"),
    (checkpoint.main_checkpoint, ["inf"], "checkpoint inf: unknown; did you mean info?"),
    (checkpoint.main_checkpoint, ["info"], "checkpoint info: give a folder"),
    (checkpoint.main_checkpoint, ["plan", "--modle=cnn"], "unknown flag --modle; did you mean --model?"),
    (evaluate.main_evaluate, [], "no checkpoints: give --logdir of the run, or --checkpoint_dir"),
    (evaluate.main_evaluate, ["--checkpoint_dir=/no/such"], "/no/such is not a folder"),
    (evaluate.main_evaluate, ["--logdir=/dev/null"], "/dev/null/checkpoints is not a folder"),
    (experiment.main_experiment, [], "missing name of an experiment; give all, list, or some of"),
    (experiment.main_experiment, ["nul_step"], "experiment nul_step: no such experiment; did you mean null_step?"),
    (experiment.main_experiment, ["all", "null_step"], "experiment all null_step: give all without other names"),
    (experiment.main_experiment, ["null_step", "--seeds=x"], "--seeds: 'x' is not of type int"),
    (data.main_data, [], "data: missing action; choose from info, generate"),
    (data.main_data, ["generat"], "data generat: unknown; did you mean generate?"),
    (data.main_data, ["info"], "data info: give a file or folder"),
    (data.main_data, ["info", "/no/such"], "/no/such: no such file or folder"),
    (data.main_data, ["generate"], "data generate: missing name of a data set"),
    (data.main_data, ["generate", "glyph"], "data generate glyph: unknown name; did you mean glyphs?"),
    (data.main_data, ["generate", "glyphs"], "data generate glyphs: missing --out"),
    (data.main_data, ["generate", "glyphs", "--ot=x"], "unknown flag --ot; did you mean --out?"),
    (listing.main_list, ["modles"], "list modles: no kind and no component has this name; did you mean models?"),
    (listing.main_list, [""], "no kind and no component has this name; kinds: models"),
]


@pytest.mark.parametrize(("command", "args", "words"), OTHERS)
def test_other_commands(refuse, command, args, words):
    refuse(command, args, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"--batch_size=0\n", "--batch_size=0: batch_size must be at least 1"),
        (b"--bath_size=3\n", "unknown flag --bath_size"),
        (b"batch_size=3\n", "'batch_size=3' is not a flag"),
        (b"\xff\xfe--batch_size\n", "--flagfile is not UTF-8 text"),
        (b"--flagfile=/no/such\n", "--flagfile cannot be read"),
        (b"--logdir=a\0b\n", "--logdir: 'a\\x00b' contains a null character"),
    ],
)
def test_flag_files(refuse, tmp_path, content, words):
    path = tmp_path / "flags"
    path.write_bytes(content)
    refuse(task.main_worker, [*HOSTS, f"--flagfile={path}"], words)
