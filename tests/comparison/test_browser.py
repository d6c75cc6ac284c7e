"""The page of a comparison in a real browser: every curve is drawn, and the console shows no error."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from ps_trainer.comparison import page, recorded_run
from tests.comparison.test_page import PLOTS, write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# Measures the page after its layout, and leaves the sizes in the page that the browser prints.
PROBE = """
<script>
addEventListener("load", () => {
  const size = element => { const box = element.getBoundingClientRect(); return [box.width, box.height]; };
  const sizes = list => Object.fromEntries(list.map(element => [element.id, size(element)]));
  const found = {
    plots: sizes([...document.querySelectorAll("svg[id]")]),
    curves: sizes([...document.querySelectorAll("g[id]")].filter(g => /-run[0-9]+$/.test(g.id))),
    tables: document.querySelectorAll("table").length,
  };
  const element = document.createElement("pre");
  element.id = "probe";
  element.textContent = JSON.stringify(found);
  document.body.append(element);
});
</script>
"""


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("neither Chromium nor Chrome is installed; `apt-get install chromium` does it on Debian")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A page of two runs."""
    folder = tmp_path_factory.mktemp("runs")
    runs = recorded_run.read_all([write_run(folder / "a"), write_run(folder / "b", update="sync", num_dropped=1)])
    return page.write(runs, folder / "out").read_text(encoding="utf-8")


def show(browser: str, text: str, folder: pathlib.Path) -> tuple[dict, list[str]]:
    """Returns what the probe measures in a page, and the messages in the browser's console."""
    path = folder / "index.html"
    path.write_text(text.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    result = subprocess.run(
        [browser, *options, "--enable-logging=stderr", "--window-size=1280,2000", "--dump-dom", path.as_uri()],
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=300,
        check=True,
    )
    # The elements' text is HTML, but the probe writes only letters, digits and quotes, which stay as they are.
    measured = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', result.stdout)[1])
    return measured, [line for line in result.stderr.splitlines() if ":CONSOLE" in line]


def empty(sizes: dict[str, list[float]]) -> list[str]:
    """Names of elements that the browser does not draw; a curve of one point has the size of its marker."""
    return [name for name, size in sizes.items() if max(size) < 2]


def test_page_has_its_curves_and_no_error_in_the_console(browser, text, tmp_path):
    measured, messages = show(browser, text, tmp_path)
    assert messages == []
    assert sorted(measured["plots"]) == sorted(PLOTS)
    panels = [f"{name}-{key}" for name in ("loss", "test-accuracy") for key in ("step", "examples", "secs")]
    expected = [f"{panel}-run{index}" for panel in [*panels, "throughput-secs"] for index in range(2)]
    assert sorted(measured["curves"]) == sorted(expected)
    assert empty(measured["plots"]) == [] and empty(measured["curves"]) == []
    assert min(size[0] for name, size in measured["curves"].items() if name.startswith("loss-")) > 100  # pixels
    assert measured["tables"] == 2


def test_the_check_notices_a_broken_page(browser, text, tmp_path):
    broken = text.replace("</style>", '#loss-step-run0, svg[id="bytes"] { display: none; }</style>', 1)
    broken = broken.replace("</body>", "<script>undefined_function()</script></body>")
    measured, messages = show(browser, broken, tmp_path)
    assert empty(measured["curves"]) == ["loss-step-run0"]
    assert empty(measured["plots"]) == ["bytes"]
    assert len(messages) == 1 and "undefined_function is not defined" in messages[0]
