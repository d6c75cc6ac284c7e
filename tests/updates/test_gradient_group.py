"""Groups on two ps tasks when workers leave, are killed at any point of a push, or come back unnoticed."""

from __future__ import annotations

import contextlib

import pytest

from tests.testing.cluster import wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from tests.testing.two_ps import Groups, ends

NUM_WORKERS = 3


@pytest.fixture
def groups(cluster, request):
    groups = Groups(cluster, request.node.originalname.replace("_", "-"), NUM_WORKERS, **getattr(request, "param", {}))
    yield groups
    groups.close()


def test_the_other_ps_makes_the_update_from_the_same_gradients_in_any_order(groups):
    notices = [groups.push(0, worker)[1] for worker in (2, 0, 1)]
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)
    for worker, notice in zip((1, 2), (notices[2], notices[0]), strict=True):  # the closing one comes first
        groups.push(1, worker, notice)
    assert groups.values(1) == (0, 0)
    groups.push(1, 0, notices[1])
    assert groups.values(1) == (pytest.approx((3 + 1 + 2) / 3), 1)


@pytest.mark.parametrize("groups", [{"required": 2}], indirect=True)
def test_a_late_gradient_is_rejected_on_both(groups):
    for worker, notice in enumerate([groups.push(0, worker)[1] for worker in (0, 1)]):
        assert groups.push(1, worker, notice)[0] == 1
    is_accepted, notice = groups.push(0, 2)
    assert is_accepted == 0 and notice[0] == -1
    assert groups.push(1, 2, notice)[0] == 0
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2) / 2), 1)
        assert groups.counts(ps) == ([1, 1, 1], [1, 1, 0])
    assert groups.push(0, 2)[0] == 1  # its next gradient is computed from the newest parameters


def test_a_part_that_never_comes_counts_as_zero_when_its_worker_has_left(groups):
    notices = [groups.push(0, worker)[1] for worker in range(3)]
    groups.push(1, 0, notices[0])
    groups.push(1, 1, notices[1])
    assert groups.values(1)[1] == 0  # worker 2 died, and its gradient was the one that closed the group
    _, notice = groups.leave(0, 2)
    groups.leave(1, 2, notice)
    assert groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1)
    assert groups.values(1) == (pytest.approx((1 + 2) / 3), 1)


def test_the_last_worker_to_leave_closes_a_group_that_waits_for_no_other(groups):
    notices = [groups.push(0, worker)[1] for worker in (0, 1)]
    groups.push(1, 0, notices[0])
    groups.push(1, 1, notices[1])
    _, notice = groups.leave(0, 2)
    groups.leave(1, 2, notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2) / 2), 1)


def test_leaving_twice_equals_leaving_once(groups):
    groups.push(0, 0)
    for _ in range(2):
        _, notice = groups.leave(0, 2)
    assert notice[1] == 0  # still waits for worker 1
    groups.push(0, 1)
    assert groups.values(0)[1] == 1


def test_a_worker_that_comes_back_is_waited_for_again(groups):
    _, notice = groups.leave(0, 2)
    groups.leave(1, 2, notice)
    groups.join(2, process=0)
    groups.push(0, 0)
    groups.push(0, 1)
    assert groups.values(0)[1] == 0
    groups.push(0, 2)
    assert groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1)


def test_a_worker_that_pushes_counts_as_live(groups):
    groups.leave(0, 2)  # reported as gone by mistake
    groups.push(0, 2)
    groups.push(0, 0)
    assert groups.values(0)[1] == 0
    groups.push(0, 1)
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)


def test_a_lost_workers_gradient_does_not_take_another_workers_turn(groups):
    groups.push(0, 2)
    groups.leave(0, 2)
    groups.push(0, 0)
    assert groups.values(0)[1] == 0  # worker 1 is live, so it is waited for
    groups.push(0, 1)
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)


def test_a_worker_that_came_back_unnoticed_leaves_no_group_open(groups):
    groups.push(0, 2)  # killed before its part reached ps 1
    notice = groups.join(2)  # back before any task noticed the loss, so none has reported it
    assert notice[4] == 1  # its gradient is its turn in the open group, for whose update it waits
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    assert groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1)
    assert groups.values(1) == (pytest.approx((1 + 2 + 0) / 3), 1)


def test_a_late_part_of_a_rejoined_worker_is_not_added_to_its_substitute(groups):
    _, late = groups.push(0, 2)
    groups.join(2)
    assert groups.push(1, 2, late)[0] == 0
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    assert groups.values(1) == (pytest.approx((1 + 2 + 0) / 3), 1)
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    _, ps_0_notice = groups.push(0, 2, process=1)
    assert groups.push(1, 2, ps_0_notice)[0] == 1
    assert groups.values(0)[1] == groups.values(1)[1] == 2


def test_a_part_that_has_arrived_is_not_replaced(groups):
    _, ps_0_notice = groups.push(0, 2)
    groups.push(1, 2, ps_0_notice)  # killed while it waited
    groups.join(2)
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2 + 3) / 3), 1)
        assert groups.counts(ps) == ([1, 1, 1], [1, 1, 1])


def test_a_late_report_of_a_loss_changes_nothing(groups):
    _, old = groups.leave(0, 2)
    groups.join(2)
    _, ps_0_notice = groups.push(0, 2, process=1)
    assert groups.push(1, 2, ps_0_notice)[0] == 1
    groups.leave(1, 2, old)
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2 + 3) / 3), 1)


@pytest.mark.parametrize("is_fresh_only", [True, False])
@pytest.mark.parametrize("num_ps", [1, 2])
def test_a_leave_of_a_replaced_process_removes_no_worker(cluster, num_ps, is_fresh_only):
    container = f"late-leave-{num_ps}-{is_fresh_only}"
    with contextlib.closing(Groups(cluster, container, NUM_WORKERS, is_fresh_only=is_fresh_only)) as groups:
        groups.join(2)
        notice = None
        for ps in range(num_ps):  # a late call to a ps task that was frozen
            _, notice = groups.leave(ps, 2, notice, process=0)
        for worker, process in ((0, 0), (1, 0), (2, 1)):
            ps_0_notice = None
            for ps in range(num_ps):
                _, ps_0_notice = groups.push(ps, worker, ps_0_notice, process=process)
        for ps in range(num_ps):
            assert groups.values(ps) == (pytest.approx((1 + 2 + 3) / 3), 1)


@pytest.mark.parametrize("is_late_on_both", [True, False])
def test_a_leave_of_a_replaced_process_does_not_count_as_a_part_of_its_successor(groups, is_late_on_both):
    if not is_late_on_both:
        _, old = groups.leave(0, 2, process=0)
    groups.join(2)
    _, ps_0_notice = groups.push(0, 2, process=1)
    if is_late_on_both:
        _, old = groups.leave(0, 2, process=0)
    groups.leave(1, 2, old, process=0)
    assert groups.push(1, 2, ps_0_notice, process=1)[0] == 1
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2 + 3) / 3), 1)


def test_a_leave_of_a_process_that_never_joined_removes_the_one_before(groups):
    _, ps_0_notice = groups.leave(0, 2, process=1)
    groups.leave(1, 2, ps_0_notice, process=1)
    for worker in (0, 1):
        _, ps_0_notice = groups.push(0, worker)
        groups.push(1, worker, ps_0_notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2) / 2), 1)


def test_a_push_of_a_replaced_process_is_rejected(groups):
    groups.join(2)
    is_accepted, ps_0_notice = groups.push(0, 2, process=0)
    assert is_accepted == 0 and groups.push(1, 2, ps_0_notice)[0] == 0
    assert groups.counts(0) == ([0, 0, 0], [0, 0, 0])
    assert groups.push(0, 2, process=1)[0] == 1


@pytest.mark.parametrize("groups", [{"required": 2}], indirect=True)
def test_a_killed_workers_gradient_counts_towards_the_required_number(groups):
    _, ps_0_notice = groups.push(0, 2)
    groups.push(1, 2, ps_0_notice)
    _, ps_0_notice = groups.leave(0, 2)
    groups.leave(1, 2, ps_0_notice)
    _, ps_0_notice = groups.push(0, 0)
    groups.push(1, 0, ps_0_notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((3 + 1) / 2), 1)


def test_a_wait_of_a_killed_process_takes_nothing_from_its_successor(groups):
    _, ps_0_notice = groups.push(0, 2)
    old = groups.wait(0, 2, ps_0_notice)
    new = groups.wait(0, 2, groups.join(2), process=1)
    for worker in (0, 1):
        groups.push(0, worker)
    ends(old)
    ends(new)


def test_a_worker_that_is_killed_in_the_update_leaves_a_whole_update(groups):
    ps_0_notice = [groups.push(0, worker)[1] for worker in (0, 1)]
    waiting = [groups.wait(0, worker, ps_0_notice[worker]) for worker in (0, 1)]
    groups.may_update.clear()
    with pytest.raises(tf.errors.DeadlineExceededError):
        groups.push(0, 2, cancel_after_ms=500)  # its gradient completes the group
    assert groups.is_updating.is_set()
    groups.may_update.set()
    for wait in waiting:
        ends(wait)
    wait_until(lambda: groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1))
    assert groups.join(2)[4] == 1
    for worker in (0, 1):
        groups.push(1, worker, ps_0_notice[worker])
    assert groups.values(1) == (pytest.approx((1 + 2 + 0) / 3), 1)
    for process, worker in ((0, 0), (0, 1), (1, 2)):  # the next group
        _, notice = groups.push(0, worker, process=process)
        groups.push(1, worker, notice, process=process)
    assert groups.values(0)[1] == groups.values(1)[1] == 2


def test_a_late_join_of_a_replaced_process_changes_nothing(groups):
    groups.join(2)
    groups.join(2, process=0)  # a message that was on its way when the process died
    assert groups.push(0, 2, process=0)[0] == 0
    assert groups.push(0, 2, process=1)[0] == 1
