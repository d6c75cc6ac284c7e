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
    level = logger.level
    logger.addHandler(keeper)
    # The root's level, which holds until flags are parsed, leaves out what is below a warning.
    logger.setLevel(min(logger.getEffectiveLevel(), standard_logging.INFO))
    try:
        yield lines
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(level)
