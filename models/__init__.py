"""Model graphs: one model per file, readable top to bottom.

A symbolic link makes this package `ps_trainer.models`; in a clone it is `models` as well. So that both names work, its
files import each other relatively.
"""
