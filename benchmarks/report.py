"""The rows of a benchmark, and its report: printed as they come, and kept in `results.json`, `.csv` and `.md`."""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from benchmarks import arguments
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED
from ps_trainer.experiments.harness.provenance import origin_sentence, provenance

NOT_MEASURED = "–"


class ResultColumn(NamedTuple):
    """A column of a Markdown table.

    Attributes:
        head: Title.
        value: a field of the row, or a function of the row. The table shows None as a dash.
        form: Format of the numbers, for the built-in `format`.
        unit: Number by which the numbers are divided.
    """

    head: str
    value: str | Callable[[Any], Any]
    form: str = ""
    unit: float = 1

    def value_of(self, row: Row) -> Any:
        """Returns the value of a row, before it is formatted."""
        return getattr(row, self.value) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Row) -> str:
        """Returns the text of a row's cell."""
        value = self.value_of(row)
        if value is None:
            return NOT_MEASURED
        if isinstance(value, str):
            return value.replace("|", "/")
        return format(value if self.unit == 1 else value / self.unit, self.form)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One result. Each benchmark has its own row, whose fields are the columns of `results.csv`.

    Attributes:
        COLUMNS: Columns of the table in `results.md`.
    """

    COLUMNS: ClassVar[Sequence[ResultColumn]] = ()

    @property
    def is_good(self) -> bool:
        """Whether the result is as it should be; otherwise the benchmark ends with exit code 1."""
        return True

    def line(self) -> str:
        """Returns the line that is printed for this row."""
        return f"| {' | '.join(column.cell(self) for column in self.COLUMNS)} |"

    def values(self) -> dict[str, Any]:
        """Returns the fields, with numbers rounded to the four digits that a repetition confirms."""
        values = dataclasses.asdict(self)
        return {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in values.items()}

    @classmethod
    def table(cls, rows: Sequence[Any]) -> str:
        """Returns the table of at least one row of this class, in Markdown."""
        return markdown(cls.COLUMNS, rows)


class Report:
    """The results of one call of a benchmark. The files are written again after each row.

    From its creation on, SIGTERM ends the program by an exception, so that the program ends its tasks first.

    Args:
        module: Module of the benchmark.
        argv: Arguments of the benchmark.
        folder: New folder for the files.
        keys: Keys of `results.json` that hold rows, in the order of the tables.

    Attributes:
        origin: Command, commit, versions and machine.
        figures: Further values of `results.json`.
        notes: Sentences below the tables.
    """

    def __init__(self, module: str, argv: Sequence[str], folder: pathlib.Path, keys: Sequence[str] = ("rows",)):
        folder.mkdir(parents=True)
        signal.signal(signal.SIGTERM, arguments.exit_by_signal)
        self.figures: dict[str, Any] = {}
        self.notes: list[str] = []
        self._folder = folder
        self.origin = provenance(["python", "-m", module, *argv])
        self._rows: dict[str, list[Row]] = {key: [] for key in keys}
        print(f"results: {folder}", flush=True)

    def add(self, row: Row, key: str | None = None) -> None:
        """Prints a row and writes the files.

        Args:
            row: Row of the same class as the others of its key.
            key: None = the first of the report's keys.
        """
        self._rows[key or next(iter(self._rows))].append(row)
        print(row.line(), flush=True)
        self._write()

    def finish(self, *, has_failed: bool = False) -> int:
        """Writes the files, prints the tables, and returns the exit code.

        Args:
            has_failed: Whether something failed that no row contains.
        """
        self._write()
        print((self._folder / "results.md").read_text(), end="")
        return EXIT_FAILED if has_failed or not all(row.is_good for row in self._all_rows()) else EXIT_DONE

    def _all_rows(self) -> list[Row]:
        return [row for rows in self._rows.values() for row in rows]

    def _write(self) -> None:
        values = {key: [row.values() for row in rows] for key, rows in self._rows.items()}
        results = {"provenance": self.origin, **self.figures, **values}
        (self._folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
        write_csv(self._all_rows(), self._folder / "results.csv")
        (self._folder / "results.md").write_text(self._markdown())

    def _markdown(self) -> str:
        tables = [rows[0].table(rows) for rows in self._rows.values() if rows]
        notes = ["".join(f"{note}\n" for note in self.notes)] if self.notes else []
        return "\n".join([*tables, *notes, origin_sentence(self.origin) + "\n"])


def markdown(columns: Sequence[ResultColumn], rows: Sequence[Row]) -> str:
    """Formats a table in Markdown; columns of texts are aligned to the left, columns of numbers to the right."""
    is_text = [all(isinstance(column.value_of(row), str) for row in rows) for column in columns]
    lines = [
        [column.head for column in columns],
        ["---" if left else "--:" for left in is_text],
        *([column.cell(row) for column in columns] for row in rows),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write_csv(rows: Sequence[Row], path: pathlib.Path) -> None:
    """Writes a line for each row, under the names of the fields; without rows, an empty file."""
    values: list[Mapping[str, Any]] = [row.values() for row in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(values[0]) if values else [])
        if values:
            writer.writeheader()
        writer.writerows(values)
