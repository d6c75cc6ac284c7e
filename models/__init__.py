"""Model graphs: one model per file, readable top to bottom.

Its name is `ps_trainer.models`, by a link, and in a clone also `models`. So its files import each other relatively.
"""
