"""Experiments of the literature: `harness/` runs and reports them, `toolkit/` measures, models and draws."""
