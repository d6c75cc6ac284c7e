"""The loop: graph assembly, steps, worker, evaluator."""
