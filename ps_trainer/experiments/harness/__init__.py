"""Common parts of all experiments: claims and verdicts, runs and their files, progress, tables, plots, pages."""
