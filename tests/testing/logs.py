"""Access for tests to the messages that absl logs."""

from __future__ import annotations

import contextlib
import logging as standard_logging
from collections.abc import Iterator

from absl import logging


@contextlib.contextmanager
def log_lines() -> Iterator[list[str]]:
    """The messages that absl logs inside the context."""
    lines: list[str] = []

    class Keeper(standard_logging.Handler):
        def emit(self, record: standard_logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keeper, logger = Keeper(), logging.get_absl_logger()
    logger.addHandler(keeper)
    try:
        yield lines
    finally:
        logger.removeHandler(keeper)
