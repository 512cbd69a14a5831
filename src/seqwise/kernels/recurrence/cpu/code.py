"""A small assembler: Python code that generates LLVM instructions, which LLVM compiles to machine code in memory.

    code = Code("float")
    with code.function("double", 2) as (values, width):
        for u in code.loop_over_vectors(width):
            x = code.load(values, u)
            code.store(x + x, values, u)
    double = code.build()["double"]             # a C function; double(address, count)

Running such Python code computes nothing: `x + x` appends an instruction to the function being written. A value is a
64-bit integer (`Int`; addresses too) or a vector of floating-point numbers (`Vec`) as wide as a vector register of this
machine. Loops are vectorised explicitly, not by LLVM. Compiled code is not cached on disk: a cell's loops compile in a
few tenths of a second. Importing this imports LLVM, 0.1 s. It knows nothing of cells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

import llvmlite.binding as llvm
from llvmlite import ir

from seqwise.kernels.recurrence.decorators import thread_safe_cache

Number = TypeVar("Number", int, float)

INT64, INT32, VOID = ir.IntType(64), ir.IntType(32), ir.VoidType()
# Precision → type and bytes.
REAL_TYPES: dict[str, tuple[Any, int]] = {"float": (ir.FloatType(), 4), "double": (ir.DoubleType(), 8)}
FAST_MATH_FLAGS = ("contract",)  # a product and a sum may become one instruction


@thread_safe_cache
def get_vector_sizes() -> tuple[int, int]:
    """Returns (bytes of a vector register, vectors in the width of a matrix-product tile) for this machine."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 4
    return (32, 2) if features.get("avx2") else (16, 4 if features.get("neon") else 2)


def _create_target_machine() -> Any:
    """Returns LLVM's description of this machine. The compiler takes ownership of it, so each module needs its own."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


class Register(Generic[Number]):
    """A value in a register; operators append an instruction that computes another one."""

    def __init__(self, code: Code, value: Any):
        self.code, self.value = code, value

    def apply(self, operation: str, other: Self | Number) -> Self:
        """Appends the instruction of an operation, such as "add"; returns its result."""
        raise NotImplementedError

    def __add__(self, other: Self | Number) -> Self:
        return self.apply("add", other)

    def __sub__(self, other: Self | Number) -> Self:
        return self.apply("sub", other)

    def __mul__(self, other: Self | Number) -> Self:
        return self.apply("mul", other)


class Int(Register[int]):
    """A 64-bit integer."""

    def apply(self, operation: str, other: Int | int) -> Int:
        return Int(self.code, getattr(self.code.builder, operation)(self.value, self.code.as_int(other).value))

    def __floordiv__(self, other: Int | int) -> Int:
        return self.apply("sdiv", other)

    def minimum(self, other: Int | int) -> Int:
        """Returns the smaller of two integers."""
        other = self.code.as_int(other)
        return self.code.select(self < other, self, other)

    def __lt__(self, other: Int | int) -> Any:
        return self.code.builder.icmp_signed("<", self.value, self.code.as_int(other).value)

    def __ge__(self, other: Int | int) -> Any:
        return self.code.builder.icmp_signed(">=", self.value, self.code.as_int(other).value)


class Vec(Register[float]):
    """Floating-point numbers in a vector register; operations act on each lane."""

    def apply(self, operation: str, other: Vec | float) -> Vec:
        right = self.code.as_vec(other).value
        return Vec(self.code, getattr(self.code.builder, f"f{operation}")(self.value, right, flags=FAST_MATH_FLAGS))

    def __truediv__(self, other: Vec | float) -> Vec:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Vec:
        return self.code.as_vec(other) / self

    def __rsub__(self, other: float) -> Vec:
        return self.code.as_vec(other) - self

    def select_less(self, other: Vec | float, yes: Vec | float, no: Vec | float) -> Vec:
        """Returns `yes` in the lanes where self < other, otherwise `no`, also where self is NaN."""
        builder, as_vec = self.code.builder, self.code.as_vec
        is_less = builder.fcmp_ordered("<", self.value, as_vec(other).value)
        return Vec(self.code, builder.select(is_less, as_vec(yes).value, as_vec(no).value))


class Code:
    """An LLVM module that is being written, and the position of the next instruction."""

    def __init__(self, precision: str):
        self.precision, (self.scalar, self.size) = precision, REAL_TYPES[precision]
        self.lanes = get_vector_sizes()[0] // self.size
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.module = ir.Module()
        self.builder: Any = None
        self.functions: dict[str, int] = {}  # name → number of arguments
        self.lane_mask: Any = None  # the lanes of the last vector of a row that belong to the row; None: all

    # --- functions and loops ---

    @contextmanager
    def function(self, name: str, num_arguments: int) -> Iterator[list[Int]]:
        """Adds a C function whose arguments are 64-bit integers; the `with` block generates its body."""
        function = ir.Function(self.module, ir.FunctionType(VOID, [INT64] * num_arguments), name)
        self.builder = ir.IRBuilder(function.append_basic_block())
        self.functions[name] = num_arguments
        yield [Int(self, argument) for argument in function.args]
        self.builder.ret_void()

    @contextmanager
    def loop(self, start: Int | int, stop: Int | int, step: Int | int = 1) -> Iterator[Int]:
        """Generates a loop over range(start, stop, step); the `with` block generates its body."""
        builder, before = self.builder, self.builder.block
        head, body, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        count = builder.phi(INT64)
        count.add_incoming(self.as_int(start).value, before)
        builder.cbranch(Int(self, count) < stop, body, after)
        builder.position_at_end(body)
        yield Int(self, count)
        count.add_incoming((Int(self, count) + step).value, builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    @contextmanager
    def shared_loop(self, counter: Int, stop: Int) -> Iterator[Int]:
        """Generates a loop over range(stop) shared by threads: each takes its next index from the integer at `counter`.

        The `with` block generates its body.
        """
        builder, pointer = self.builder, self.builder.inttoptr(counter.value, INT64.as_pointer())
        head, body, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        index = Int(self, builder.atomic_rmw("add", pointer, INT64(1), "monotonic"))
        builder.cbranch(index < stop, body, after)
        builder.position_at_end(body)
        yield index
        builder.branch(head)
        builder.position_at_end(after)

    def loop_over_vectors(self, width: Int) -> Iterator[Int]:
        """Generates a loop over the vectors that begin at u < width.

        The caller's loop body runs twice: once it generates the code for whole vectors, once for the remaining lanes.
        """
        full = width // self.lanes * self.lanes
        with self.loop(0, full, self.lanes) as u:
            yield u
        with self.builder.if_then(full < width), self.mask_lanes(width - full):
            yield full

    @contextmanager
    def mask_lanes(self, count: Int | None) -> Iterator[None]:
        """Restricts loads and stores inside the block to the first `count` lanes of a vector; None means all."""
        if count is not None:
            integers = ir.VectorType(INT64, self.lanes)
            counts = self._broadcast(count.value, integers)
            self.lane_mask = self.builder.icmp_signed("<", ir.Constant(integers, list(range(self.lanes))), counts)
        yield
        self.lane_mask = None

    def call(self, address: Int, *arguments: Int | int) -> None:
        """Calls the function of 64-bit integers at an address."""
        pointer_type = ir.FunctionType(VOID, [INT64] * len(arguments)).as_pointer()
        function = self.builder.inttoptr(address.value, pointer_type)
        self.builder.call(function, [self.as_int(argument).value for argument in arguments])

    def make_internal(self, name: str) -> Any:
        """Makes a function private to this module and excludes it from inlining."""
        function = self.module.globals[name]
        function.linkage = "internal"
        function.attributes.add("noinline")
        del self.functions[name]
        return function

    def call_local(self, function: Any, *arguments: Int | int) -> None:
        """Calls a function of this module."""
        self.builder.call(function, [self.as_int(argument).value for argument in arguments])

    def add_list_version(self, name: str, original: str, num_arguments: int) -> None:
        """Adds a version of a function whose only argument is the address of a list of the original's arguments."""
        with self.function(name, 1) as (address,):
            arguments = [self.load_int(address, index) for index in range(num_arguments)]
            self.call_local(self.module.globals[original], *arguments)

    # --- values ---

    def as_int(self, value: Int | int) -> Int:
        """Returns an integer as a register."""
        return value if isinstance(value, Int) else Int(self, INT64(value))

    def as_vec(self, value: Vec | float) -> Vec:
        """Returns a number as a vector with it in every lane; a vector unchanged."""
        return value if isinstance(value, Vec) else Vec(self, ir.Constant(self.vector, [value] * self.lanes))

    def select(self, condition: Any, yes: Int, no: Int) -> Int:
        """Returns `yes` if the condition holds, otherwise `no`."""
        return Int(self, self.builder.select(condition, yes.value, no.value))

    def broadcast(self, scalar: Any) -> Vec:
        """Returns a vector with one floating-point number in every lane."""
        return Vec(self, self._broadcast(scalar, self.vector))

    def broadcast_int(self, value: Int) -> Vec:
        """Returns a vector with an integer, converted to floating point, in every lane."""
        return self.broadcast(self.builder.sitofp(value.value, self.scalar))

    def _broadcast(self, scalar: Any, vector_type: Any) -> Any:
        undefined = ir.Constant(vector_type, ir.Undefined)
        lane_0 = self.builder.insert_element(undefined, scalar, INT32(0))
        return self.builder.shuffle_vector(
            lane_0, undefined, ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        )

    # --- memory ---

    def compute_pointer(self, address: Int, offset: Int | int = 0) -> Any:
        """Returns a pointer to the floating-point number at the address plus `offset` numbers."""
        return self.builder.inttoptr((address + self.as_int(offset) * self.size).value, self.scalar.as_pointer())

    def load_int(self, address: Int, index: Int | int = 0) -> Int:
        """Loads the 64-bit integer at the address plus `index` integers."""
        pointer = self.builder.inttoptr((address + self.as_int(index) * 8).value, INT64.as_pointer())
        return Int(self, self.builder.load(pointer))

    def load(self, address: Int, offset: Int | int = 0) -> Vec:
        """Loads the vector at the address plus `offset` numbers."""
        pointer = self.builder.bitcast(self.compute_pointer(address, offset), self.vector.as_pointer())
        if self.lane_mask is not None:
            zeros = ir.Constant(self.vector, [0.0] * self.lanes)
            return Vec(self, self._call_masked_intrinsic("load", self.vector, [pointer], [zeros]))
        value = self.builder.load(pointer)
        value.align = self.size
        return Vec(self, value)

    def store(self, value: Vec, address: Int, offset: Int | int = 0) -> None:
        """Stores a vector at the address plus `offset` numbers."""
        pointer = self.builder.bitcast(self.compute_pointer(address, offset), self.vector.as_pointer())
        if self.lane_mask is not None:
            self._call_masked_intrinsic("store", VOID, [value.value, pointer], [])
        else:
            self.builder.store(value.value, pointer).align = self.size

    def _call_masked_intrinsic(self, name: str, result_type: Any, before: list[Any], after: list[Any]) -> Any:
        """Calls llvm.masked.load or .store; its arguments stand `before` and `after` the alignment and the mask."""
        arguments = [*before, INT32(self.size), self.lane_mask, *after]
        return self.call_intrinsic(f"masked.{name}", result_type, arguments, suffix=".p0")

    # --- LLVM intrinsics ---

    def call_intrinsic(self, name: str, result_type: Any, arguments: list[Any], suffix: str = "") -> Any:
        """Calls an intrinsic on vectors, such as llvm.sqrt.v16f32 for the name "sqrt"."""
        full_name = f"llvm.{name}.v{self.lanes}f{8 * self.size}{suffix}"
        function = self.module.globals.get(full_name)
        if function is None:
            function_type = ir.FunctionType(result_type, [argument.type for argument in arguments])
            function = ir.Function(self.module, function_type, full_name)
        return self.builder.call(function, arguments)

    def fma(self, x: Vec, y: Vec | float, z: Vec | float) -> Vec:
        """Returns x · y + z, rounded once where the machine can."""
        values = [self.as_vec(operand).value for operand in (x, y, z)]
        return Vec(self, self.call_intrinsic("fmuladd", self.vector, values))

    def abs(self, x: Vec) -> Vec:
        return Vec(self, self.call_intrinsic("fabs", self.vector, [x.value]))

    def sqrt(self, x: Vec) -> Vec:
        return Vec(self, self.call_intrinsic("sqrt", self.vector, [x.value]))

    # --- compilation ---

    def build(self) -> dict[str, CompiledFunction]:
        """Compiles all functions to machine code; returns them by name."""
        target, module = _create_target_machine(), llvm.parse_assembly(str(self.module))
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        # The code is already vectorised.
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(target, options)
        builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, target)
        engine.finalize_object()
        return {name: CompiledFunction(engine, name, count) for name, count in self.functions.items()}


class Sum:
    """A vector that a loop adds to."""

    def __init__(self, code: Code):
        self.code = code
        with code.builder.goto_entry_block():
            self.pointer = code.builder.alloca(code.vector)
        code.builder.store(code.as_vec(0.0).value, self.pointer)

    def add(self, value: Vec) -> None:
        """Adds a vector."""
        code = self.code
        if code.lane_mask is not None:  # masked lanes add zero
            value = Vec(code, code.builder.select(code.lane_mask, value.value, code.as_vec(0.0).value))
        code.builder.store(code.builder.fadd(code.builder.load(self.pointer), value.value), self.pointer)

    def broadcast(self) -> Vec:
        """Returns the sum of all lanes in every lane. Halves are added until one lane is left."""
        builder, width = self.code.builder, self.code.lanes
        partial = builder.load(self.pointer)
        while width > 1:
            width //= 2
            indices = ir.VectorType(INT32, width)
            low, high = (ir.Constant(indices, list(range(start, start + width))) for start in (0, width))
            partial = builder.fadd(*(builder.shuffle_vector(partial, partial, half) for half in (low, high)))
        return self.code.broadcast(builder.extract_element(partial, INT32(0)))


class CompiledFunction:
    """A C function of 64-bit integers. It runs without the global interpreter lock."""

    def __init__(self, engine: Any, name: str, num_arguments: int):
        self.engine = engine  # owns the machine code
        self.address = engine.get_function_address(name)
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * num_arguments)(self.address)

    def __call__(self, *arguments: int) -> None:
        self._call(*arguments)
