"""Tests of `ps_trainer.data`."""
