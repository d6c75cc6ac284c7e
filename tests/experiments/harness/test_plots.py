"""Plots as files, and the error where they cannot be drawn."""

from __future__ import annotations

import importlib.util
import struct

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import plots
from ps_trainer.experiments.harness.plots import Drawing, Plot


def draw(figure, squares):
    figure.add_subplot().plot([1, 2], squares)


PLOT = Plot(key="line", title="A line", shows="A line.", expected="it rises.", draw=draw, size=(4.0, 3.0))


def test_a_plot_is_saved_as_png_and_svg_with_title_and_level(tmp_path):
    files = plots.save(Drawing(PLOT, [1, 4]), "Words.", tmp_path)
    png, svg = files.png.read_bytes(), files.svg.read_text()
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (4.0 * 110, 3.0 * 110)
    assert "A line" in svg
    assert "L0 virtual time" in svg
    assert (files.png.name, files.svg.name, files.caption) == ("line.png", "line.svg", "Words.")


def test_the_layout_is_computed_once_for_both_files(tmp_path, monkeypatch):
    laid_out, execute = [], ConstrainedLayoutEngine.execute
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda *given: laid_out.append(given[1]) or execute(*given))
    plots.save(Drawing(PLOT, [1, 4]), "Words.", tmp_path)
    assert len(laid_out) == 1


def test_the_same_plot_gives_the_same_file(tmp_path):
    def svg(folder):
        folder.mkdir()
        return plots.save(Drawing(PLOT, [1, 4]), "Words.", folder).svg.read_text()

    assert svg(tmp_path / "a") == svg(tmp_path / "b")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    plots.check_available()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"make experiments.*pip install 'ps_trainer\[plots\]'"):
        plots.check_available()
