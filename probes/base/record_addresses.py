"""Records by address, for compiled code: one pointer instead of arrays with their counts."""

from __future__ import annotations

import importlib
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

# llvmlite and parts of numba have no hints.
ir: Any = importlib.import_module("llvmlite.ir")
_utilities: Any = cgutils


@intrinsic
def record_at(_typing: Any, address: Any, index: Any, kind: Any) -> Any:
    """The record of type `kind` (a numpy dtype) that is `index` records behind `address`."""
    record = kind.dtype

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        size = arguments[1].type(record.size)
        place = builder.add(arguments[0], builder.mul(arguments[1], size))
        return builder.inttoptr(place, context.get_value_type(record))

    return record(types.int64, types.int64, kind), generate


@intrinsic
def copy_record(_typing: Any, to: Any, source: Any, kind: Any) -> Any:
    """Copy one record over another of the same type."""
    size = kind.dtype.size

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _utilities.raw_memcpy(
            builder, arguments[0], arguments[1], ir.Constant(ir.IntType(64), size), 1
        )
        return context.get_dummy_value()

    return types.none(to, source, kind), generate


@intrinsic
def run_address(_typing: Any, address: Any, a: Any, b: Any, c: Any) -> Any:
    """Call the C function at an address with three records; it returns an int64."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [one.type for one in arguments[1:]])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(types.int64, a, b, c), generate
