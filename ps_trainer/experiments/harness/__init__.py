"""What is the same for every experiment: claims and verdicts, runs and their files, progress, tables, plots, pages."""
