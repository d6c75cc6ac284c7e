"""Matrix factorization for ratings."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from . import layers


class MatrixFactorization:
    """Ratings as the product of a user's and an item's factors, with biases of both.

        score  = b[user] + c[item] + p[user] . q[item]
        rating = mean_rating + rating_scale * score
        loss   = mean over the batch of ((rating of the data - rating) / rating_scale) ** 2
                 + decay * (b[user] ** 2 + c[item] ** 2 + |p[user]| ** 2 + |q[item]| ** 2)

    The data give `mean_rating` and `rating_scale`, so that the same learning rate fits ratings of 1..5 and 1..100.

    A row of the table "users" is p[user] and b[user]; a row of "items" is q[item] and c[item]. Only a batch's rows of
    both tables travel.

    Source: Y. Koren, R. Bell, C. Volinsky, "Matrix Factorization Techniques for Recommender Systems", Computer 42(8),
    2009, equation 5. There, the scale is 1.

    Shape suffixes: B batch, F factors.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `MatrixFactorization`."""

        num_users: int = layers.option(300, "number of users; their numbers must be smaller", least=1)
        num_items: int = layers.option(200, "number of items; their numbers must be smaller", least=1)
        dim: int = layers.option(4, "number of factors of a user and of an item", least=1)
        mean_rating: float = layers.option(3.5, "predicted rating of an unknown item by an unknown user")
        rating_scale: float = layers.option(1.0, "standard deviation of the ratings, the unit of the score", above=0)
        decay: float = layers.option(0.02, "factor of the decay in the loss", least=0)

    defaults = layers.TrainingSettings(
        optimizer="adagrad", optimizer_option=("initial_accumulator_value=0.0001",), learning_rate=0.1, batch_size=256
    )

    no_preset = "the source is a survey of the method, without settings"

    def __init__(self, options: Options):
        self.options = options

    def chance_metrics(self) -> dict[str, float]:
        """Returns the test metric of a guess of the mean rating for all."""
        return {"relative_squared_error": 1.0}

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "user" and "item" int64 [B]; "rating" float32 [B].
            training: Whether to add the decay to the loss.

        Returns:
            Loss; the predicted rating, float32 [B]; "squared_error", whose mean is the square of the RMSE. Also
            "relative_squared_error", its quotient by the squared error of a guess of the mean rating for all.
        """
        dim = self.options.dim
        # Not zeros: the gradient of a user's factors is a multiple of the item's factors, so both would stay 0.
        start = tf.truncated_normal_initializer(stddev=0.1)
        user_BF = layers.embedding(
            "users", self.options.num_users, dim + 1, batch["user"], start, size_option="num_users"
        )
        item_BF = layers.embedding(
            "items", self.options.num_items, dim + 1, batch["item"], start, size_option="num_items"
        )
        score_B = user_BF[:, dim] + item_BF[:, dim] + tf.reduce_sum(user_BF[:, :dim] * item_BF[:, :dim], axis=1)
        rating_B = self.options.mean_rating + self.options.rating_scale * score_B
        error_B = tf.math.squared_difference(rating_B, batch["rating"])
        loss = tf.reduce_mean(error_B) / self.options.rating_scale**2
        if training and self.options.decay > 0:
            squares_B = tf.reduce_sum(user_BF**2 + item_BF**2, axis=1)
            loss += self.options.decay * tf.reduce_mean(squares_B)
        pooled = {"relative_squared_error": layers.Pooled((error_B, batch["rating"]), relative_squared_error)}
        return layers.ModelOutput(loss, rating_B, {"squared_error": error_B}, pooled)


def relative_squared_error(error_n: np.ndarray, rating_n: np.ndarray) -> float:
    """Computes the mean squared error in parts of the variance of the ratings; 1 is that of the mean rating.

    Args:
        error_n: float32 [n], squared errors of the predictions.
        rating_n: float32 [n], ratings of the data.
    """
    return float(np.mean(error_n) / max(np.var(rating_n), np.finfo(np.float32).tiny))
