"""Model graphs: one model per file, readable top to bottom.

A symbolic link makes this package `ps_trainer.models`; in a clone it is `models` as well. So that both names work, its
files import each other relatively.
"""

import pkgutil

# A user's own folder `models` without an __init__.py: in a clone, this package would hide it.
__path__ = pkgutil.extend_path(__path__, __name__)
