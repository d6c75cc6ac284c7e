"""The command line: the only code that uses absl.flags."""
