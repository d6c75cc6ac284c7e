"""TensorFlow Serving's REST API for one model, as a function from a request to a status code and JSON.

    GET  /v1/models/NAME                    state and version, which is the global step
    GET  /v1/models/NAME/metadata           the signature: names, types and shapes of the inputs and of the predictions;
                                            "classes": the names of the classes in their order, if they have names;
                                            "columns": the names of the columns that a row needs, if it takes rows
    POST /v1/models/NAME:predict            {"instances": [...]} -> {"predictions": [...]}, or
                                            {"inputs": ...}      -> {"outputs": ...}

`/versions/STEP` may stand after NAME. Source: https://www.tensorflow.org/tfx/serving/api_rest. An addition: an instance
may also be a line, a row `{"column": value}`, or a file `{"b64": "..."}`, whatever the run's dataset reads. A
difference: requests and answers are JSON (RFC 8259), so neither has the words NaN and Infinity, which TensorFlow
Serving takes and gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import tensorflow.compat.v1 as tf

from ps_trainer.errors import DataError
from ps_trainer.inference.prediction import plain
from ps_trainer.inference.served_model import Loaded, ServedModel

SIGNATURE = "serving_default"

_DTYPES = {"float32": "FLOAT", "float64": "DOUBLE"}  # the other names differ in case only
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata|:\w+)?")


class Response(NamedTuple):
    """Status code and content of a response."""

    code: int
    content: dict[str, Any]


class ApiError(Exception):
    """A request that cannot be answered.

    Args:
        code: Status code of the response.
        message: The fault, and its fix.
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


class RestApi:
    """The endpoints of one model.

    Args:
        name: Name of the model in paths.
        model: Model to serve.
    """

    def __init__(self, name: str, model: ServedModel):
        self._name, self._model = name, model

    def answer(self, method: str, path: str, body: bytes = b"") -> Response:
        """Answers a request; every error of the request becomes an answer with the key "error"."""
        try:
            return Response(200, self._answer(method, path.partition("?")[0], body))
        except ApiError as error:
            return Response(error.code, {"error": str(error)})
        except DataError as error:
            return Response(400, {"error": " ".join(str(error).split())})
        except tf.errors.DeadlineExceededError:
            return Response(504, {"error": "the prediction took too long; send fewer instances"})

    def _answer(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        found = _PATH.fullmatch(path)
        if found is None or found[1] != self._name:
            raise ApiError(404, f"{path} does not exist; the model is at /v1/models/{self._name}")
        loaded = self._model.loaded
        if found[2] is not None and int(found[2]) != loaded.version:
            raise ApiError(404, f"version {found[2]} is not loaded; the loaded one is {loaded.version}")
        verb = found[3]
        if verb not in (None, "/metadata", ":predict"):
            raise ApiError(404, f"{verb[1:]} is not offered; the model offers predict")
        wanted = "POST" if verb == ":predict" else "GET"
        if method != wanted:
            raise ApiError(405, f"{path} takes {wanted} requests")
        if verb == ":predict":
            return self._predict(_parse_body(body), loaded)
        return self._metadata(loaded) if verb else _status(loaded)

    def _predict(self, request: Mapping[str, Any], loaded: Loaded) -> dict[str, Any]:
        signature = request.get("signature_name") or SIGNATURE
        if signature != SIGNATURE:
            raise ApiError(400, f"signature_name {signature!r} does not exist; the only one is {SIGNATURE!r}")
        given = {"instances", "inputs"} & set(request)
        if len(given) != 1:
            raise ApiError(400, 'the request must have either "instances" or "inputs"')
        names = list(self._model.graph.inputs)
        if given == {"inputs"}:
            inputs = request["inputs"]
            if self._model.reads_rows and isinstance(inputs, Mapping) and inputs and self._is_row(_first_row(inputs)):
                rows = self._model.predict_records(_rows_of(inputs), loaded)
                return {"outputs": {key: [row[key] for row in rows] for key in rows[0]}}
            named = inputs if isinstance(inputs, Mapping) else dict.fromkeys(names[:1], inputs)
            return {"outputs": plain(self._model.predict_tensors(named, loaded))}
        instances = request["instances"]
        if not isinstance(instances, list) or not instances:
            raise ApiError(400, '"instances" must be a list with at least one instance')
        first = instances[0]
        if isinstance(first, str) or (isinstance(first, Mapping) and self._is_row(first)):
            return {"predictions": self._model.predict_records(instances, loaded)}
        return {"predictions": plain(self._model.predict_tensors(_group_by_input(instances, names), loaded))}

    def _is_row(self, values: Mapping[str, Any]) -> bool:
        """Returns whether an instance is a row, or a file, and not tensors, whose names the columns may have."""
        has_texts = self._model.reads_rows and any(isinstance(value, str) for value in values.values())
        return has_texts or not set(values) & set(self._model.graph.inputs)

    def _metadata(self, loaded: Loaded) -> dict[str, Any]:
        graph = self._model.graph
        signature = {
            "inputs": {name: _describe_tensor(tensor) for name, tensor in graph.inputs.items()},
            "outputs": {"predictions": _describe_tensor(graph.predictions)},
            "method_name": "tensorflow/serving/predict",
        }
        metadata: dict[str, Any] = {"signature_def": {"signature_def": {SIGNATURE: signature}}}
        if self._model.names.classes:
            metadata["classes"] = self._model.names.classes
        if self._model.row_columns:
            metadata["columns"] = self._model.row_columns
        return {
            "model_spec": {"name": self._name, "signature_name": "", "version": str(loaded.version)},
            "metadata": metadata,
        }


def _parse_body(body: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the request is not JSON: {error}") from error
    if not isinstance(request, Mapping):
        raise ApiError(400, 'the request must be a JSON object with "instances" or "inputs"')
    return request


def _reject_constant(word: str) -> NoReturn:
    raise ApiError(
        400,
        f"the request is not JSON, which has no {word}; send a finite number, or null for a missing value of a row",
    )


def _first_row(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[0] if isinstance(values, list) and values else None for name, values in columns.items()}


def _rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turns the values of each column into a row for each example."""
    sizes = {name: len(values) if isinstance(values, list) else 0 for name, values in columns.items()}
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise ApiError(400, f"each column must be a list with a value for each example; their sizes: {sizes}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _group_by_input(instances: list[Any], names: list[str]) -> dict[str, list[Any]]:
    """Turns a list of instances into a list for each input."""
    if not isinstance(instances[0], Mapping):
        if len(names) != 1:
            raise ApiError(400, f"instance 0 must name the inputs: {', '.join(names)}")
        return {names[0]: instances}
    keys = set(instances[0])
    for number, instance in enumerate(instances):
        if not isinstance(instance, Mapping) or set(instance) != keys:
            raise ApiError(400, f"instance {number} must name the inputs {', '.join(sorted(keys))}, as instance 0 does")
    return {key: [instance[key] for instance in instances] for key in keys}


def _status(loaded: Loaded) -> dict[str, Any]:
    status = {"error_code": "OK", "error_message": ""}
    return {"model_version_status": [{"version": str(loaded.version), "state": "AVAILABLE", "status": status}]}


def _describe_tensor(tensor: tf.Tensor) -> dict[str, Any]:
    """Describes a tensor as TensorFlow Serving does: its `TensorInfo` in JSON."""
    shape: dict[str, Any] = {"unknown_rank": tensor.shape.rank is None, "dim": []}
    if not shape["unknown_rank"]:
        sizes = [-1 if size is None else size for size in tensor.shape.as_list()]
        shape["dim"] = [{"size": str(size), "name": ""} for size in sizes]
    name = tensor.dtype.name
    return {"dtype": f"DT_{_DTYPES.get(name, name.upper())}", "tensor_shape": shape, "name": tensor.name}
