"""Experiments of the literature: `frame/` runs and reports them, `lab/` is what they measure with."""
