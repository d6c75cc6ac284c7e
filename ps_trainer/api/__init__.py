"""The Python API: train from Python, with objects in place of the names that flags take.

`import ps_trainer` offers its names (`ps_trainer.train`), and imports this package when one of them is first used.
"""
