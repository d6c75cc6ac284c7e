"""The text that tells how a chief would use the checkpoints of a folder."""

from __future__ import annotations

from ps_trainer.training import checkpoint_plan
from tests.checkpoints.checkpoint_files import write
from tests.testing.cluster import config_of


def test_a_new_run_says_how_many_variables_and_slots_it_initialises(tmp_path):
    config = config_of("Dense", "Rows", optimizer="momentum", update="ssp", batch_size=4)
    text, fits = checkpoint_plan.make(config, tmp_path, num_ps=2, num_workers=2)
    assert fits
    lines = text.splitlines()
    assert lines[0] == f"{tmp_path} holds no checkpoint: the run starts at step 0"
    assert lines[1] == "  initialised: 4 model variables, 4 optimizer slots"
    assert lines[2].startswith("  initialised, as no checkpoint holds it: the update rule's own state: ")


def test_a_checkpoint_of_another_model_does_not_fit(tmp_path):
    write(tmp_path, 3)
    text, fits = checkpoint_plan.make(config_of("Dense", "Rows", batch_size=4), tmp_path, num_ps=1, num_workers=1)
    assert not fits
    assert "model.ckpt-3 does not fit: the run ends before it starts, with exit code 2" in text
