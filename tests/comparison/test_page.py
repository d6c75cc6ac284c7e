"""The page of a comparison: its tables, curves and files."""

from __future__ import annotations

import html.parser
import re

import pytest

from ps_trainer.cli import main
from ps_trainer.comparison import page, recorded_run
from tests.comparison.run_folder import START, report, write
from tests.testing.repetitions import representatives

ORDERS = ["--out_dir={out}|{a}|{b}", "{a}|--out_dir={out}|{b}", "{a}|--out_dir|{out}|{b}"]
PLOTS = ["loss", "test-accuracy", "throughput", "staleness", "gradients", "bytes"]


def write_run(folder, *, update="async", rate=2.0, num_dropped=0, name="run <b>"):
    figures = {"staleness_mean": 2.0, "push_bytes_per_step": 1000.0, "pull_bytes_per_step": 2000.0}
    reports = [report(secs, int(secs * rate), int(secs * rate), 1.0 / secs, rate, **figures) for secs in (1, 2, 3)]
    reports.append({"wall_time": START + 4, "kind": "eval", "global_step": 6, "metrics": {"accuracy": 0.5}})
    kill = {"wall_time": START + 2, "kind": "event", "event": "kill", "task": "worker-1", "global_step": 4}
    worker = {
        "local_steps": 6, "pushes": 6, "gradients_dropped": num_dropped, "staleness": {"0": 3, "40": 3 - num_dropped},
    }  # fmt: skip
    return write(
        folder / name,
        {"worker-0": reports, "launcher": [kill]},
        summary={"status": "done", "global_step": 6, "workers": {"0": worker}},
        settings={"update": update, "logdir": str(folder), "seed": 0},
    )


@pytest.fixture
def runs(tmp_path):
    return recorded_run.read_all([write_run(tmp_path / "a"), write_run(tmp_path / "b", update="sync", num_dropped=1)])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The file of a page about two runs."""
    folder = tmp_path_factory.mktemp("page")
    runs = recorded_run.read_all([write_run(folder / "a"), write_run(folder / "b", update="sync", num_dropped=1)])
    return page.write(runs, folder / "out")


class Page(html.parser.HTMLParser):
    """Ids, open elements and everything that a page would load."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loaded, self.scripts = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.scripts += tag == "script"
        self.loaded += [
            values[key] for key in ("src", "href", "xlink:href") if values.get(key, "#").strip()[:1] not in "#"
        ]


def test_page_holds_every_figure_and_loads_nothing(written):
    text = written.read_text()
    parsed = Page(text)
    assert [name for name in PLOTS if name not in parsed.ids] == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.loaded == ["data:,"] and parsed.scripts == 0
    assert "url(http" not in text and "@import" not in text
    assert sorted(file.name for file in written.parent.glob("*.png")) == sorted(f"{name}.png" for name in PLOTS)


def test_names_are_escaped(written):
    text = written.read_text()
    assert "run &lt;b&gt;" in text and "<b>" not in text


def test_references_within_the_page_lead_to_an_id(written):
    text = written.read_text()
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
    assert used
    assert {a or b for a, b in used} <= set(Page(text).ids)


def test_each_run_has_its_curve_and_its_disturbance_in_the_picture(written):
    text = written.read_text()
    loss = text[text.index('<svg id="loss"') : text.index("</svg>")]
    for panel in ("step", "secs"):
        assert [f'id="loss-{panel}-run{index}-event0"' in loss for index in range(2)] == [True, True]
    assert "loss-examples-run0-event0" not in loss  # how many examples were read at that moment is not recorded
    assert "kill worker-1 after 2.0 s, at step 4" in text


def test_only_settings_that_differ_are_listed(runs):
    assert page.differences(runs) == {"--update": ["async", "sync"]}


def test_results_are_those_of_the_files(runs):
    results = page.results(runs)
    assert results["gradients dropped"] == ["0", "1"]
    assert results["test accuracy"] == ["0.5", "0.5"]
    assert results["bytes pulled per step"] == ["2,000", "2,000"]
    assert "restarts" not in results


def write_continued_run(folder, worker, **summary):
    """Worker 0 makes 6 steps, starts again after 10 s, and makes 4 more."""
    reports = [
        report(3, 6, 6, 1.0, 2.0, staleness_mean=3.0, push_bytes_per_step=100.0),
        report(15, 4, 10, 1.0, 2.0, staleness_mean=1.0, gradients_dropped=2, push_bytes_per_step=200.0),
    ]
    summary = {"status": "done", "global_step": 10, "workers": {"0": worker}, **summary}
    return write(folder / "again", {"worker-0": reports}, summary=summary)


def test_results_of_a_continued_run_count_all_joins(tmp_path, capsys):
    last_join = {"local_steps": 4, "pushes": 4, "gradients_dropped": 2, "staleness": {"1": 2}}
    folder = write_continued_run(tmp_path, last_join, examples_per_sec=0.0)
    (run,) = recorded_run.read_all([folder])
    results = page.results([run])
    assert results["examples"] == [str(run.loss.x["examples"][-1].astype(int))] == ["100"]
    assert results["examples per second"] == [str(100 // (3 + 2))]  # both starts, without the time between them
    assert results["mean staleness"] == [f"{(6 * 3 + (4 - 2) * 1) / (6 + 2):.4g}"]
    assert results["bytes pushed per step"] == [f"{(6 * 100 + 4 * 200) / 10:.4g}"]
    assert results["gradients dropped"] == ["2"]
    assert main.main(["ps_trainer", "plot", str(folder)]) == 0
    note = "used and dropped gradients count only since the workers last joined (4 of 10 steps)"
    assert note in capsys.readouterr().out
    text = (folder / "plots" / "index.html").read_text()
    assert note in text and text.count("again (since the last join)") == 2


def test_gradients_that_the_ps_tasks_counted_over_all_joins_are_not_called_partial(tmp_path):
    worker = {"local_steps": 4, "pushes": 11, "gradients_used": 8, "gradients_dropped": 3, "staleness": {"1": 2}}
    runs = recorded_run.read_all([write_continued_run(tmp_path, worker)])
    assert page.results(runs)["gradients dropped"] == ["3"]
    (note,) = page.notes(runs)[1:]
    assert note.startswith("again: the staleness histogram counts only since the workers last joined (4 of 10 steps)")


def test_a_last_start_that_trained_nothing_gives_no_empty_plots(tmp_path):
    nothing = {"local_steps": 0, "examples": 0, "pushes": 0, "gradients_dropped": 0, "staleness": {}}
    runs = recorded_run.read_all([write_continued_run(tmp_path, nothing, examples_per_sec=0.0)])
    assert page.results(runs)["examples"] == ["100"]
    parsed = Page(page.write(runs, tmp_path / "out").read_text())
    assert "gradients" not in parsed.ids and "staleness" not in parsed.ids and "bytes" in parsed.ids
    assert len(page.notes(runs)) == 1


def test_a_run_without_a_summary_has_the_figures_of_its_reports(tmp_path):
    folder = write_continued_run(tmp_path, {})
    (folder / "summary.json").unlink()
    results = page.results(recorded_run.read_all([folder]))
    assert results["status"] == ["no summary; last report at step 10"]
    assert (results["global step"], results["examples"]) == (["10"], ["100"])
    assert (results["mean staleness"], results["gradients dropped"]) == (["2.5"], ["2"])


def test_a_failed_run_has_the_step_of_its_last_report(tmp_path):
    folder = write_continued_run(tmp_path, {}, status="failed", global_step=None, workers={})
    results = page.results(recorded_run.read_all([folder]))
    assert (results["status"], results["global step"], results["examples"]) == (["failed"], ["10"], ["100"])


def write_short_run(folder):
    """A run with the data of few plots, because drawing is most of a command's time."""
    return write(folder / "run <b>", {"worker-0": [report(1, 2, 2, 1.0, 2.0)]}, settings={"logdir": str(folder)})


class TestCommands:
    # In the last one the flag has folders on both sides, and its value is an argument of its own.
    @pytest.mark.parametrize("order", representatives(ORDERS, ORDERS[2:]))
    def test_compare_writes_a_page_for_flags_and_folders_in_any_order(self, tmp_path, capsys, order):
        runs = {name: write_run(tmp_path / name) for name in "ab"}
        arguments = order.format(out=tmp_path / "out", **runs).split("|")
        assert main.main(["ps_trainer", "compare", *arguments]) == 0
        assert (tmp_path / "out" / "index.html").is_file()
        printed = capsys.readouterr().out
        assert re.match(r" +a/run <b> +b/run <b>\n", printed), "the columns have no names"
        assert re.search(r"gradients dropped +0 +0\n", printed)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["compare", "{run}"], "compare takes at least two runs, got 1; to see one, use plot"),
            (["plot", "{run}", "{run}"], "plot takes one run, got 2; to see several, use compare"),
            (["plot"], "plot takes one run, got 0"),
            (["plot", "{run}", "--out_dir={run}/config.json"], "{run}/config.json is a file; give another --out_dir"),
            (
                ["plot", "{run}", "--out_dir={run}/config.json/page"],
                "{run}/config.json is a file; give another --out_dir",
            ),
            (["plot", "{run}/none"], "{run}/none does not exist; give the --logdir of a run"),
            (["plot", "{run}/config.json"], "{run}/config.json is a file; give the --logdir of a run"),
            (["plot", "{run}/metrics"], "{run}/metrics holds no run: it has no folder metrics/"),
            (["compare", "{run}", "{run}/."], "a run is given twice; give each folder once"),
            (["plot", "--logdir={run}"], "plot has no flag --logdir; give the folder of a run without a flag"),
            (["compare", "{run}", "--logdir", "{run}"], "compare has no flag --logdir; give the folder of a run"),
        ],
    )
    def test_wrong_arguments_are_rejected(self, tmp_path, capsys, arguments, message):
        run = write_run(tmp_path)
        assert main.main(["ps_trainer", *(argument.format(run=run) for argument in arguments)]) == 2
        printed = capsys.readouterr().err
        assert message.format(run=run) in printed
        assert "Errno" not in printed

    def test_a_damaged_run_is_a_failure(self, tmp_path, capsys):
        run = write_run(tmp_path)
        (run / "config.json").write_text("{")
        assert main.main(["ps_trainer", "plot", str(run)]) == 1
        assert "config.json is not JSON" in capsys.readouterr().err

    def test_a_page_that_cannot_be_written_is_a_failure(self, tmp_path, capsys):
        run = write_short_run(tmp_path)
        (tmp_path / "out" / page.PAGE_NAME).mkdir(parents=True)
        assert main.main(["ps_trainer", "plot", str(run), f"--out_dir={tmp_path}/out"]) == 1
        printed = capsys.readouterr().err
        assert f"the page cannot be written: {tmp_path}/out/index.html: Is a directory; give another" in printed

    def test_without_matplotlib_the_extra_is_named(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert main.main(["ps_trainer", "plot", str(write_run(tmp_path))]) == 2
        assert "pip install 'ps_trainer[plots]'" in capsys.readouterr().err
