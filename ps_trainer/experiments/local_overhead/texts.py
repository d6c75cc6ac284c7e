"""The words on the page of the experiment on the cost of a ps task."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

TEXTS = PageTexts(
    question="What does a ps task cost if everything runs on one machine?",
    answers={
        "equal": "[the losses stay the same at every step|the losses differ]",
        "slower": "a step with a ps task [takes|does not always take] longer",
        "linear": "[it takes longer by a fixed time and by|the additional time is not a fixed time plus] a time in"
        " proportion to the size of the model",
        "over_stock": "it takes [no longer|longer] than a step of a hand-written TF1 script",
    },
    best_plot="overhead",
    background=(
        "Without a ps task, one process keeps the parameters in its own memory. With a ps task, the worker pulls them"
        " before each step and pushes a gradient after it. Both are packed, sent through a socket and unpacked. The"
        " arithmetic must not change, so the losses must stay the same. Each message has a fixed cost, and each byte"
        " is copied. So a straight line against the size of the model is expected."
    ),
    formula=(
        "step with a ps task = step without + a + b·M\n"
        "\n"
        "a  time of the messages, whatever their size\n"
        "b  time to copy and to send a byte"
    ),
    finding=(
        "Abadi et al. (Table 1) compare TensorFlow with Caffe, Neon and Torch on one GPU, for four convolutional"
        " networks. TensorFlow's steps differ from Torch's by at most 6 %, with the same GPU kernels below both. Issue"
        " 15 of tensorflow/benchmarks says that one worker is slower in distributed mode, and that this is by design."
        " Its script is one of TensorFlow 1. Neither source measures what a ps task adds on one machine."
    ),
    setup=(
        "One process (`--num_ps=0`) against one worker with one or two ps tasks, as processes of the same machine. The"
        " models have 2.6 kB to 17 MB and train on digits, with batches of 16 and one thread per op. The plot shows"
        " plain SGD. After each such pair, a hand-written TF1 script makes the same training: `replica_device_setter`,"
        " `MonitoredTrainingSession`, one ps task, no class of ps_trainer, as many threads. Further runs compare only"
        " the losses, under other optimizers, update rules and layouts, and with two ps tasks."
    ),
    reasons={
        "equal": "[The ps task applies the same updates in the same order to the same values.|Another order of a sum"
        " changes the last bits. The number of threads per op decides that order.]",
        "stock_slower": "[The script sends each variable, gradient and learning rate in a message of its own.|]",
        "slower": "Parameters and gradients are packed, sent and unpacked, once in each direction.",
        "linear": "The fixed part comes from the messages and the calls, the rest from copies.",
        "over_stock": "The script sends each variable, gradient and learning rate in a message of its own, and pulls"
        " only when its step begins. ps_trainer sends one message each way, and pulls as soon as the update is"
        " applied. How much each of the two saves was not measured. What they save grows with the size of the model"
        " (table), so it is not the messages alone.",
    },
    intervals="Student's t on the log ratios of the same seeds, or on their differences",
    limits=(
        "The largest and the smallest model are outside of the range of the models to which their line is fitted.",
        "There is no network. Between machines, the time on the link comes on top.",
        "A worker and a ps task never pause, and this load is what is measured. Times count if other programs used less"
        " than a tenth of the cores.",
        "The source's libraries, networks and GPU are not here. Its numbers are given for reference only.",
    ),
)
