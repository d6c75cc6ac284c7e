"""`Registry`: the names of one kind of component (`--model=cnn`), and the classes that they stand for.

A table maps a name to `module:Class` as text. So this file imports neither TensorFlow nor the components, and a class
is imported when its name is requested. A user may give `module:Class` in place of a name, so a component outside
of this repository needs no change here: `--model=my_pkg.my_file:MyModel`.

A component is a class. Its options, if it has any, are a frozen dataclass in its attribute `Options`, and
`Class(options)` makes the instance. A class without `Options` is called without options. `ps_trainer list`
prints the first line of its docstring.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer import options as options_lib
from ps_trainer.errors import UnknownNameError, did_you_mean, list_names


class Registry:
    """One kind of component.

    Args:
        kind: Words for the components in messages ("update rule").
        flag: Flag that takes the name, without dashes ("update"); `--<flag>_option` takes the options.
        targets: Table from name to `module:Class`.
        has_inline_options: True if options follow the name instead: `--<flag> name:key=value,…`.
        methods: Names of methods that every class of this kind has; a class without them is rejected.
    """

    def __init__(
        self,
        kind: str,
        flag: str,
        targets: Mapping[str, str],
        *,
        has_inline_options: bool = False,
        methods: Sequence[str] = (),
    ):
        self.methods = tuple(methods)
        self.kind = kind
        self.flag = flag
        self.has_inline_options = has_inline_options
        self._targets = dict(targets)

    def names(self) -> list[str]:
        """Returns the registered names, in table order."""
        return list(self._targets)

    def target(self, name: str) -> str:
        """Returns `module:Class` of a registered name."""
        return self._targets[name]

    def check(self, name: str, flag: str | None = None) -> None:
        """Raises UnknownNameError unless `name` is registered or has the form `module:Class`.

        Args:
            name: Name or `module:Class` as the user gave it.
            flag: Flag that the name came from, with dashes; None = the registry's own flag.
        """
        if name in self._targets or _is_target(name):
            return
        raise UnknownNameError(
            f"{flag or f'--{self.flag}'}={name}: unknown {self.kind}; {did_you_mean(name, self._targets)}"
            f"known: {', '.join(self._targets) or 'none'}; give your own class as package.module:Class"
        )

    def load(self, name: str, flag: str | None = None) -> type[Any]:
        """Returns the class of `name`.

        Args:
            name: Registered name or `module:Class`.
            flag: Flag that the name came from, with dashes; None = the registry's own flag.

        Raises:
            UnknownNameError: Not registered, or the module or class does not exist, or it is of another kind.
        """
        flag = flag or f"--{self.flag}"
        self.check(name, flag)
        module_name, _, class_name = self._targets.get(name, name).partition(":")
        try:
            module = _import(module_name)
        except ModuleNotFoundError as error:
            if not _is_missing(module_name, error):
                raise  # the module exists, but a module that it imports does not
            raise UnknownNameError(
                f"{flag}={name}: no module named {error.name!r} on the Python path;"
                " start from its folder, or install it, or set PYTHONPATH"
            ) from error
        if not hasattr(module, class_name):
            classes = [value for value in vars(module).values() if isinstance(value, type)]
            own = [cls.__name__ for cls in classes if cls.__module__ == module.__name__]
            known = f"; {did_you_mean(class_name, own)}it has {list_names(own)}" if own else ""
            raise UnknownNameError(f"{flag}={name}: {module.__file__} has no class {class_name!r}{known}")
        cls = getattr(module, class_name)
        missing = [method for method in self.methods if not hasattr(cls, method)]
        if missing or not isinstance(cls, type):
            article = "an" if self.kind[0] in "aeiou" else "a"
            reason = f"it has no method `{missing[0]}`" if missing else "it is not a class"
            raise UnknownNameError(f"{flag}={name}: {class_name} is not {article} {self.kind}: {reason}")
        return cls

    def name_of(self, instance: object) -> str:
        """Returns the registered name of an instance's class; a class of the user's own has its name in Python."""
        cls = type(instance)
        target = f"{cls.__module__}:{cls.__qualname__}"
        return next((name for name, known in self._targets.items() if known == target), cls.__qualname__)

    def create(self, name: str, option_strings: Sequence[str] = (), **kwargs: Any) -> Any:
        """Creates an instance of `name` with its options parsed from `key=value` strings.

        Args:
            name: Registered name or `module:Class`.
            option_strings: Values of `--<flag>_option`.
            **kwargs: Further arguments of the class.

        Raises:
            UnknownNameError: The name cannot be loaded.
            OptionError: An option is unknown or has a wrong value.
        """
        options = self.parse_options(name, option_strings)
        cls = self.load(name)
        return cls(**kwargs) if options is None else cls(options, **kwargs)

    def parse_options(self, name: str, option_strings: Sequence[str]) -> Any:
        """Returns the options of `name`, parsed from `key=value` strings; None if its class takes none.

        Args:
            name: Registered name or `module:Class`.
            option_strings: Values of `--<flag>_option`.

        Raises:
            UnknownNameError: The name cannot be loaded.
            OptionError: An option is unknown or has a wrong value.
        """
        options_type = getattr(self.load(name), "Options", None)
        return options_lib.parse_if_any(options_type, option_strings, f"--{self.flag}_option", f"{self.kind} {name!r}")


def split_inline(text: str) -> tuple[str, list[str]]:
    """Splits `name:key=value,key=value` or `module:Class:key=value` into the component's name and its options."""
    # The last colon, because the name itself may be `module:Class`.
    head, colon, tail = text.rpartition(":")
    if colon and ("=" in tail or not tail):
        return head, [string for string in tail.split(",") if string]
    return text, []


def _import(module_name: str) -> types.ModuleType:
    """Returns the module; `models.cnn`, as old runs recorded a model, stands for `ps_trainer.models.cnn`.

    A user's own module of that name comes first.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not (module_name.startswith("models.") and _is_missing(module_name, error)):
            raise
        # If this name fails, too, the error must be about the name that was given.
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"ps_trainer.{module_name}")
        raise


def _is_missing(module_name: str, error: ModuleNotFoundError) -> bool:
    """Returns whether the module itself, or a package that it lies in, was not found."""
    return error.name is not None and (module_name + ".").startswith(error.name + ".")


def _is_target(name: str) -> bool:
    module_name, colon, class_name = name.partition(":")
    return bool(colon) and class_name.isidentifier() and all(p.isidentifier() for p in module_name.split("."))
