"""`KeptRows`: some rows of a table and its slots, kept a second time on a ps task until a save has read them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf


class KeptRows:
    """Ops on the kept rows; the ps task has memory for them between `begin` and `free` only.

    Args:
        variables: Table, then its slots, on the ps task.
        container: Container of the run.
        name: Name that no other rows of the run have.
    """

    def __init__(self, variables: Sequence[tf.Variable], container: str, name: str):
        self._variables = variables
        # No control dependency of the caller, such as a gradient that has to arrive.
        with tf.control_dependencies(None), tf.device(variables[0].device):
            self._handles = [
                tf.raw_ops.VarHandleOp(
                    dtype=variable.dtype.base_dtype,
                    shape=tf.TensorShape([None]).concatenate(variable.shape[1:]),
                    container=container,
                    shared_name=f"{name}/{index}",
                )
                for index, variable in enumerate(variables)
            ]

    def begin(self, num_rows: tf.Tensor) -> tf.Operation:
        """Builds the op that takes the memory, after `free`; the rows have no values yet.

        Args:
            num_rows: Number of rows, int32 scalar.
        """
        return tf.group(
            *(
                # The system gives the memory of a large array page by page, when a row is written.
                tf.raw_ops.AssignVariableOp(
                    resource=handle,
                    value=tf.raw_ops.Empty(
                        shape=tf.concat([[num_rows], variable.shape[1:]], 0), dtype=variable.dtype.base_dtype
                    ),
                )
                for handle, variable in zip(self._handles, self._variables, strict=True)
            )
        )

    def put(self, indices: tf.Tensor, rows: Sequence[tf.Tensor]) -> tf.Operation:
        """Builds the op that sets rows.

        Args:
            indices: Indices among the kept rows, int64 [n].
            rows: Values for each variable, [n, ...].
        """
        return tf.group(
            *(
                tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=indices, updates=part)
                for handle, part in zip(self._handles, rows, strict=True)
            )
        )

    def get(self, indices: tf.Tensor) -> list[tf.Tensor]:
        """Builds the tensors that read rows, one for each variable."""
        # Not a read of the whole: TensorFlow copies a variable that a scatter has changed for that.
        return [
            tf.raw_ops.ResourceGather(resource=handle, indices=indices, dtype=variable.dtype.base_dtype)
            for handle, variable in zip(self._handles, self._variables, strict=True)
        ]

    def free(self) -> tf.Operation:
        """Builds the op that frees the memory; also when there is none."""
        return tf.group(
            *(tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True) for handle in self._handles)
        )
