"""The words on the page of the experiment on the ps tasks' links."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

TEXTS = PageTexts(
    question="How many ps tasks does it take until their links are no longer the bottleneck?",
    answers={
        "ps_round": "[as many as there are workers, as a synchronous round takes 2nM/(pB) until p = n|a synchronous"
        " round does not take 2nM/(pB)]",
        "unsharded": "with most of the bytes in one variable, its ps task [decides|does not alone decide] the time of a"
        " round",
        "partitioned": "cut into parts, such a model [takes|does not take] 2M/B",
        "colocated": "a ring all-reduce, or a ps task on each worker's host, takes [the time that its bytes need|a time"
        " that is not that of its bytes]",
        "pipelined": "pushes and pulls that overlap [take M/B in place of 2M/B|do not take M/B]",
    },
    best_plot="round",
    background=(
        "In a round, each of n workers sends M bytes of gradients and receives M bytes of parameters. If one ps task"
        " holds everything, its link carries nM bytes each way. With p ps tasks it carries nM/p, so the time of a round"
        " falls as 1/p until the workers' own links are the limit. In a ring all-reduce, every worker sends and"
        " receives 2(n − 1)M/n bytes, whatever n is. A ps task on each worker's host moves as many."
    ),
    formula=(
        "synchronous round = 2 · max(M/B, nM/(pB))             ps tasks on other hosts (A10)\n"
        "ring, or colocated = 2(n − 1)M / (nB)                 (A11)\n"
        "with k more hosts ≥ 2n(n − 1)M / ((n² + kn − 2k)B)    both directions at once (A12)"
    ),
    finding=(
        "Dive into Deep Learning (chapter Parameter Servers) derives O(n) for one server and O(n/p) for p servers. Its"
        " example adds up 160 MB of gradients of 4 GPUs. It takes 60 ms on one GPU, 80 ms on the CPU, 15 ms with a"
        " share on each. Jiang et al. (section 4) prove the least time for k additional hosts, with M/B at k = n. Their"
        " BytePS is up to 84 % faster than all-reduce and up to 245 % faster than a parameter server. Sergeev and Del"
        " Balso report that distributed TensorFlow lost about half of 128 GPUs to communication."
    ),
    setup=(
        "Each task, or worker with a ps task, has a network namespace behind a link of 100 mbit/s. Where cores would"
        " limit, it has 12 to 50. Up to 4 workers have a model of 8 MB and compute nothing. B is what TCP can use:"
        " 1,448 of 1,514 bytes of a frame. Arms: ps tasks on separate hosts or on the workers' (colocated), a ring,"
        " asynchronous workers, a variable with three quarters of the bytes. Plain sockets add gradients, whole or in"
        " 16 chunks (overlapped). TCP is reno, in some arms bbr. Queues hold 0.5 s, with asynchronous workers"
        " 0.05 or 0.5 s. Simulations have 64 workers."
    ),
    reasons={
        "ps_round": "Where several workers pull through one link, a round may be a few per cent shorter: the first"
        " worker to have all its parameters pushes while others still pull.",
        "colocated": "[The time is that of the bytes. Rows with bbr show how much longer it is there.|The column"
        " “measured / predicted” shows the direction. The cause was not found.]",
        "pipelined": "A ps task sends the sum of a chunk while the workers still push the next chunks, so each link"
        " carries data both ways at once.",
        "congestion": "Plain sockets show it, too, so neither TensorFlow nor gRPC is the cause. Which part of it"
        " acknowledgements have that wait behind data was not measured.",
        "both_directions": "[Once workers are out of step, the pull of one passes at the same time as the push of"
        " another. Not all coincide, so the gain is less than a factor of two.|A value below the limits means that more"
        " transfers coincide than in the simulator. With one ps task, a step takes hardly longer than the nM/B that its"
        " link allows (column “round (M/B)”). Real steps are nearly even, so workers probably settle in a pattern in"
        " which both directions are always busy. In the simulator, steps vary at random.]",
        "queues": "Only the length of the queues differs. Probably a request for parameters waits behind gradients of"
        " other workers, so that workers get in step: all pull, or all push.",
        "unsharded": "The ps task with the most bytes decides (A18).",
        "simulated_colocated": "Every link carries data in both directions all the time. From 16 workers on, that is"
        " nearly 2M/B, as with p = n hosts beside the workers'. So such hosts pay only where pushes and pulls overlap.",
        "simulated_async": "With one ps task, pulls and pushes are two queues for n workers, which take (n + 1)M/B in"
        " place of 2nM/B.",
    },
    doubts={
        "pipelined": "Rounds of two workers are short, at 100 mbit/s, and differ much from each other. Those of four,"
        " at 50 mbit/s, differ less and are nearer to M/B.",
        "queues": "With one ps task, its link is nearly full whatever the length of the queues. With two, links have"
        " time to spare, which workers that are in step waste.",
    },
    intervals="Student's t on the logarithms of the seeds' times, paired by seed where two arms are compared",
    limits=(
        "Shaped hosts have at most 4 workers, and one size of model. Larger clusters are simulated.",
        "There is no latency, and no switch that could be the bottleneck. 64 KiB pass a link without waiting.",
        "The prediction for asynchronous workers on shaped hosts comes from the simulator, whose steps besides their"
        " transfers are exponential, so that workers do not stay in step.",
        "Plain sockets have links of 50 or 100 mbit/s. At 25 mbit/s, those of four workers with ps tasks on their hosts"
        " took twice the predicted time under reno, too, though few segments were lost (commit 7815c1d). Clusters of"
        " ps_trainer did not at 12 mbit/s.",
        "Only other activity on the machine makes these results random.",
        "Pushes and pulls overlap between plain sockets only. Here a step of ps_trainer has one message each way, as in"
        " TF1; by default it has several between hosts, which overlap.",
        "0 < k < n additional hosts were not run.",
    ),
)
