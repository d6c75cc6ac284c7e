"""Where parameters live: layouts over the ps tasks, tables, checkpoints."""
