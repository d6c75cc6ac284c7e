"""Advice about the spread of features."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.pipeline import feature_spread


@pytest.mark.parametrize("value", [feature_spread.SMALL, 1.0, feature_spread.LARGE, 0.0])
def test_usual_and_constant_features_need_no_advice(value):
    assert feature_spread.advice({"x": value}, "scale them") == ""


def test_the_feature_farthest_from_1_is_named_with_the_fix():
    assert feature_spread.advice({"x": 50.0, "y": 1.0, "z": 1e-6}, "scale them") == (
        "the values of z, and 1 more, are spread far from 1 (standard deviation 1e-06), so training may diverge or"
        " hardly move; scale them"
    )


def test_arrays_of_float_features_count_by_their_widest_feature():
    features = np.stack([np.tile([0.0, 2.0], 300), np.tile([0.0, 400.0], 300)], axis=1)
    labels = np.tile([0, 900], 300)
    found = feature_spread.of_arrays([features.astype(np.float32), labels, labels.astype(float), np.zeros([0, 3])])
    assert found == {"array 0": 200.0}
