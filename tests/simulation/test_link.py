"""Transfers that share a link: their ends, by arithmetic."""

from __future__ import annotations

import pytest

from ps_trainer.simulation.link import SharedLink


def ends(link: SharedLink, begins: dict[int, float]) -> dict[int, float]:
    """The end of each worker's transfer; `begins` is in the order of time."""
    waiting, found = list(begins.items()), {}
    while waiting or link.next_end() is not None:
        end = link.next_end()
        if waiting and (end is None or waiting[0][1] <= end):
            link.begin(*waiting.pop(0))
        else:
            found[link.end(end)] = end
    return found


def test_alone_it_has_the_rate_of_the_slower_end():
    assert ends(SharedLink(100, 50, 200), {0: 1.0}) == {0: 1.0 + 200 / 50}
    assert ends(SharedLink(100, 500, 200), {0: 1.0}) == {0: 1.0 + 200 / 100}


def test_together_they_share_evenly_and_end_together():
    assert ends(SharedLink(100, 500, 200), {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}) == dict.fromkeys(range(4), 4 * 200 / 100)


def test_a_later_transfer_slows_the_first_and_is_alone_at_its_end():
    # 0 has moved 100 alone by 1 s. Both move 50/s until 0's last 100 end at 3 s. 1's last 100 take 1 s alone.
    assert ends(SharedLink(100, 500, 200), {0: 0.0, 1: 1.0}) == pytest.approx({0: 3.0, 1: 4.0})


def test_too_few_to_fill_the_link_do_not_slow_each_other():
    assert ends(SharedLink(100, 30, 60), {0: 0.0, 1: 0.5, 2: 1.0}) == pytest.approx({0: 2.0, 1: 2.5, 2: 3.0})


def test_an_idle_link_keeps_no_state():
    assert ends(SharedLink(100, 100, 100), {0: 0.0, 1: 5.0}) == pytest.approx({0: 1.0, 1: 6.0})


def test_it_moves_all_bytes_at_full_rate_while_busy():
    begins = {worker: 0.01 * worker for worker in range(50)}
    assert max(ends(SharedLink(1000, 1000, 40), begins).values()) == pytest.approx(50 * 40 / 1000)
