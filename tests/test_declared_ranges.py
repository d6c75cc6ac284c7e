"""Every option of every component, and every flag of every command, keeps to the range that it declares."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator

import pytest

from ps_trainer import component_tables, options
from ps_trainer.cli import checkpoint, experiment, flags, local, simulate, simulate_train
from ps_trainer.config import TrainConfig
from ps_trainer.data.generators import generate
from ps_trainer.disturbances import faults
from ps_trainer.errors import OptionError
from ps_trainer.options import MAX_INT, option
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules import schedule_table

COMMANDS = (
    TrainConfig,
    checkpoint.PlanFlags,
    experiment.ExperimentFlags,
    local.LocalFlags,
    simulate.SimulateFlags,
    simulate_train.ReplayFlags,
)
FAULTS = (faults._FaultTime, faults._TimedFault, faults._SlowFault, faults._Chaos)


BOUNDS = ("least", "above", "most", "below")


class Declared(typing.NamedTuple):
    """One field of options, and a function that gives it a value as a user does."""

    name: str
    owner: type
    field: dataclasses.Field
    hint: typing.Any
    parse: Callable[[str], object]


def fields_of(owner: str, options_type: type, parse: Callable[[str], object]) -> Iterator[Declared]:
    hints = typing.get_type_hints(options_type)
    for field in dataclasses.fields(options_type):
        yield Declared(f"{owner} {options.key_of(field)}", options_type, field, hints[field.name], parse)


def all_fields() -> Iterator[Declared]:
    registries = component_tables.REGISTRIES
    types = {f"{kind} {name}": one.load(name) for kind, one in registries.items() for name in one.names()}
    types = {owner: getattr(component, "Options", None) for owner, component in types.items()}
    types |= {f"generator {name}": generate.options_type(generate.load(name)) for name in generate.GENERATORS}
    types |= {f"simulated {name}": rule.Options for name, rule in schedule_table.RULES.items()}
    types |= {f"fault {one.__name__}": one for one in FAULTS}
    for owner, options_type in types.items():
        if options_type is not None:
            yield from fields_of(
                owner, options_type, lambda text, of=options_type: options.parse(of, [text], "--an_option")
            )
    for command in COMMANDS:
        yield from fields_of(
            command.__name__, command, lambda text, of=command: flags.parse(["program", f"--{text}"], "", of)
        )


def beyond(field: dataclasses.Field, number: type) -> list[float | int]:
    """Numbers just outside both ends of the declared range."""
    bounds = field.metadata
    outside = [bounds[name] for name in ("above", "below") if name in bounds]
    step = 1 if number is int else 1e-6
    outside += [bounds["least"] - step] if "least" in bounds else []
    outside += [bounds["most"] + step] if bounds.get("most", math.inf) < math.inf else []
    if number is int:
        return outside + [MAX_INT + 1]
    return outside + [math.nan] + ([] if bounds.get("most") == math.inf else [math.inf, -math.inf])


def number_of(hint: typing.Any) -> type | None:
    """`int` or `float`, if a field of type `hint` holds such numbers."""
    found = {hint, *typing.get_args(hint)} & {int, float}
    return found.pop() if found else None


FIELDS = list(all_fields())


def is_in_range(declared: Declared, value: object) -> bool:
    """Whether the declared range accepts the value."""
    try:
        declared.parse(f"{options.key_of(declared.field)}={options.format_value(value)}")
    except (OptionError, ValueError) as error:  # models reject fields that contradict each other
        return f"{options.key_of(declared.field)} must be " not in str(error)
    return True


@pytest.mark.parametrize("declared", [one for one in FIELDS if number_of(one.hint)], ids=lambda one: one.name)
def test_a_number_outside_of_its_range_is_rejected_and_its_border_is_accepted(declared):
    number = number_of(declared.hint)
    for value in [] if "choices" in declared.field.metadata else beyond(declared.field, number):
        assert not is_in_range(declared, value), value
    borders = [declared.field.metadata[name] for name in ("least", "most") if name in declared.field.metadata]
    for value in [*borders, *declared.field.metadata.get("choices", ()), declared.field.default]:
        assert is_in_range(declared, value), value


@pytest.mark.parametrize(
    "declared", [one for one in FIELDS if "choices" in one.field.metadata], ids=lambda one: one.name
)
def test_only_the_choices_are_accepted(declared):
    assert not is_in_range(declared, 1234567)
    assert all(is_in_range(declared, choice) for choice in declared.field.metadata["choices"])


def lost_bounds(declared: Declared) -> list[str]:
    """Bounds of the field in a base of its dataclass that the dataclass leaves out when it declares the field again."""
    bases = filter(dataclasses.is_dataclass, declared.owner.__mro__[1:])
    fields = [field for base in bases for field in dataclasses.fields(base) if field.name == declared.field.name]
    own = declared.field.metadata
    return [
        bound for field in fields for bound in BOUNDS if bound in field.metadata and not {bound, "choices"} & {*own}
    ]


def test_a_field_that_a_subclass_declares_again_keeps_its_bounds():
    assert {declared.name: lost for declared in FIELDS if (lost := lost_bounds(declared))} == {}


def test_a_bound_that_a_subclass_leaves_out_is_found():
    size = next(declared for declared in FIELDS if declared.name == "generator glyphs size")
    again = dataclasses.field(default=28)
    again.name = "size"
    assert lost_bounds(size._replace(field=again)) == ["least"]


def test_a_simulated_cluster_has_the_ranges_of_its_flags():
    of_flags = {field.name: field for field in dataclasses.fields(simulate.SimulateFlags)}
    for field in dataclasses.fields(ClusterModel):
        assert options.range_of(field) == options.range_of(of_flags[field.name])


def test_all_components_are_checked():
    assert sum("least" in one.field.metadata for one in FIELDS) > 100
    assert sum("choices" in one.field.metadata for one in FIELDS) > 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranges:
    """One field of every kind of range."""

    count: int = option(3, "an int", least=1, most=9)
    share: float | None = option(0.5, "a float", least=0, below=1)
    rate: float = option(1.0, "a float", above=0)
    limit: float = option(math.inf, "a float", above=0, most=math.inf)
    free: float = option(-1.0, "a float")
    sizes: tuple[int, ...] = option((1, 2), "ints", least=1)
    form: str = option("round", "a text", choices=("round", "square"))
    lambda_: float = option(0.0, "a float", least=0)


@pytest.mark.parametrize(
    ("string", "message"),
    [
        ("count=0", "count must be at least 1 and at most 9; the default is 3"),
        ("share=1", "share must be at least 0 and below 1; the default is 0.5"),
        ("rate=0", "rate must be above 0; the default is 1.0"),
        ("rate=inf", "rate must be above 0 and finite; the default is 1.0"),
        ("limit=nan", "limit must be above 0; the default is inf"),
        ("free=nan", "free must be finite; the default is -1.0"),
        ("sizes=3,0", "each value of sizes must be at least 1; the default is 1,2"),
        (f"sizes={2**63}", f"each value of sizes must be at least 1 and at most {2**63 - 1}; the default is 1,2"),
        ("form=sqare", "did you mean square? form must be one of round, square; the default is round"),
        ("lambda=-1", "lambda must be at least 0; the default is 0.0"),
    ],
)
def test_a_message_names_the_value_the_allowed_range_and_the_default(string, message):
    with pytest.raises(OptionError) as caught:
        options.parse(Ranges, [string], "--a_option")
    assert str(caught.value) == f"--a_option {string}: {message}"


def test_a_range_without_an_upper_limit_names_none():
    fields = {field.name: options.range_of(field) for field in dataclasses.fields(Ranges)}
    assert (fields["limit"], fields["rate"], fields["count"]) == ("above 0", "above 0", "at least 1 and at most 9")


def test_values_in_range_are_accepted():
    given = ["count=9", "share=none", "limit=inf", "sizes=", "form=square"]
    assert options.parse(Ranges, given, "--a_option") == Ranges(
        count=9, share=None, limit=math.inf, sizes=(), form="square"
    )


def test_options_that_code_creates_are_checked_alike():
    options.check(Ranges())
    with pytest.raises(OptionError, match="^--count=10: count must be at least 1 and at most 9; the default is 3$"):
        options.check(Ranges(count=10))
