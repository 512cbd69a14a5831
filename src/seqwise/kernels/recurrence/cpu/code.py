"""A small assembler: Python code that generates LLVM instructions, which LLVM compiles to machine code in memory.

    code = Code("float")
    with code.function("double", 2) as (values, width):
        for u in code.each_vector(width):
            x = code.load(values, u)
            code.store(x + x, values, u)
    run = code.build()["double"]                # a C function; run(address, count)

Running such Python code computes nothing: `x + x` appends an instruction to the function being written. A value is a
64-bit integer (`Int`; addresses too) or a vector of floating-point numbers (`Vec`) as wide as a vector register of this
machine. Loops are vectorised explicitly, not by LLVM. Compiled code is not cached on disk: a cell's loops compile in a
few tenths of a second. Importing this imports LLVM, 0.1 s. It knows nothing of cells.

`run` calls a compiled function on several threads. These are PyTorch's own OpenMP threads if it finds them: after a
matrix product they are still spinning, so a second pool of threads would have to wait for their cores. Elsewhere they
are Python's; compiled code runs without the global interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

import llvmlite.binding as llvm
import torch
from llvmlite import ir

from seqwise.kernels.recurrence.decorators import thread_safe_cache

Number = TypeVar("Number", int, float)

INT64, INT32, VOID = ir.IntType(64), ir.IntType(32), ir.VoidType()
# precision → type and bytes
REAL_TYPES: dict[str, tuple[Any, int]] = {"float": (ir.FloatType(), 4), "double": (ir.DoubleType(), 8)}
FAST_MATH_FLAGS = ("contract",)  # a product and a sum may become one instruction


@thread_safe_cache
def get_vector_sizes() -> tuple[int, int]:
    """(bytes of a vector register, vectors in the width of a matrix-product tile) for this machine."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 4
    return (32, 2) if features.get("avx2") else (16, 4 if features.get("neon") else 2)


def _create_target_machine() -> Any:
    """The target machine: this one. The compiler takes ownership of it, so each module needs its own."""
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
        raise NotImplementedError

    def __add__(self, other: Self | Number) -> Self:
        return self.apply("add", other)

    def __sub__(self, other: Self | Number) -> Self:
        return self.apply("sub", other)

    def __mul__(self, other: Self | Number) -> Self:
        return self.apply("mul", other)


class Int(Register[int]):
    """An integer."""

    def apply(self, operation: str, other: Int | int) -> Int:
        return Int(self.code, getattr(self.code.builder, operation)(self.value, self.code.as_int(other).value))

    def __floordiv__(self, other: Int | int) -> Int:
        return self.apply("sdiv", other)

    def minimum(self, other: Int | int) -> Int:
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
        """`yes` where self < other, else `no`, also where self is NaN."""
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
        self.lane_mask: Any = None  # in the last vector of a row: which lanes are part of the row

    # --- functions and loops ---

    @contextmanager
    def function(self, name: str, num_arguments: int) -> Iterator[list[Int]]:
        """Write a C function whose arguments are 64-bit integers; the block generates its body."""
        function = ir.Function(self.module, ir.FunctionType(VOID, [INT64] * num_arguments), name)
        self.builder = ir.IRBuilder(function.append_basic_block())
        self.functions[name] = num_arguments
        yield [Int(self, argument) for argument in function.args]
        self.builder.ret_void()

    @contextmanager
    def loop(self, start: Int | int, stop: Int | int, step: Int | int = 1) -> Iterator[Int]:
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

    def each_vector(self, width: Int) -> Iterator[Int]:
        """Generate a loop over the vectors that begin at u < width.

        The caller's loop body runs twice: it generates the code for whole vectors, and that for the remaining lanes.
        """
        full = width // self.lanes * self.lanes
        with self.loop(0, full, self.lanes) as u:
            yield u
        with self.builder.if_then(full < width), self.mask_lanes(width - full):
            yield full

    @contextmanager
    def mask_lanes(self, count: Int | None) -> Iterator[None]:
        """Within this context, loads and stores access only the first `count` lanes of a vector; None means all."""
        if count is not None:
            integers = ir.VectorType(INT64, self.lanes)
            counts = self._broadcast(count.value, integers)
            self.lane_mask = self.builder.icmp_signed("<", ir.Constant(integers, list(range(self.lanes))), counts)
        yield
        self.lane_mask = None

    def call(self, address: Int, *arguments: Int | int) -> None:
        """Call the function of 64-bit integers at an address."""
        pointer_type = ir.FunctionType(VOID, [INT64] * len(arguments)).as_pointer()
        function = self.builder.inttoptr(address.value, pointer_type)
        self.builder.call(function, [self.as_int(argument).value for argument in arguments])

    def make_internal(self, name: str) -> Any:
        """Make a function private to this module and exclude it from inlining."""
        function = self.module.globals[name]
        function.linkage = "internal"
        function.attributes.add("noinline")
        del self.functions[name]
        return function

    def call_local(self, function: Any, *arguments: Int | int) -> None:
        """Call a function of this module."""
        self.builder.call(function, [self.as_int(argument).value for argument in arguments])

    def add_list_version(self, name: str, original: str, count: int) -> None:
        """Add a version of a function whose only argument is the address of a list of its arguments."""
        with self.function(name, 1) as (words,):
            self.call_local(self.module.globals[original], *(self.load_word(words, index) for index in range(count)))

    # --- values ---

    def as_int(self, value: Int | int) -> Int:
        return value if isinstance(value, Int) else Int(self, INT64(value))

    def as_vec(self, value: Vec | float) -> Vec:
        return value if isinstance(value, Vec) else Vec(self, ir.Constant(self.vector, [value] * self.lanes))

    def select(self, condition: Any, yes: Int, no: Int) -> Int:
        return Int(self, self.builder.select(condition, yes.value, no.value))

    def broadcast(self, scalar: Any) -> Vec:
        """A vector with one floating-point number in every lane."""
        return Vec(self, self._broadcast(scalar, self.vector))

    def broadcast_int(self, value: Int) -> Vec:
        """An integer converted to floating point, in every lane."""
        return self.broadcast(self.builder.sitofp(value.value, self.scalar))

    def _broadcast(self, scalar: Any, vector_type: Any) -> Any:
        undefined = ir.Constant(vector_type, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, INT32(0))
        return self.builder.shuffle_vector(
            first, undefined, ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        )

    # --- memory ---

    def pointer(self, address: Int, offset: Int | int = 0) -> Any:
        """A pointer to the floating-point number at the address plus `offset` numbers."""
        return self.builder.inttoptr((address + self.as_int(offset) * self.size).value, self.scalar.as_pointer())

    def load_word(self, address: Int, index: Int | int = 0) -> Int:
        """Load the 64-bit integer at the address plus `index` integers."""
        pointer = self.builder.inttoptr((address + self.as_int(index) * 8).value, INT64.as_pointer())
        return Int(self, self.builder.load(pointer))

    def load(self, address: Int, offset: Int | int = 0) -> Vec:
        pointer = self.builder.bitcast(self.pointer(address, offset), self.vector.as_pointer())
        if self.lane_mask is not None:
            zeros = ir.Constant(self.vector, [0.0] * self.lanes)
            return Vec(self, self._call_masked_intrinsic("load", self.vector, [pointer], [zeros]))
        value = self.builder.load(pointer)
        value.align = self.size
        return Vec(self, value)

    def store(self, value: Vec, address: Int, offset: Int | int = 0) -> None:
        pointer = self.builder.bitcast(self.pointer(address, offset), self.vector.as_pointer())
        if self.lane_mask is not None:
            self._call_masked_intrinsic("store", VOID, [value.value, pointer], [])
        else:
            self.builder.store(value.value, pointer).align = self.size

    def _call_masked_intrinsic(self, name: str, result: Any, first: list[Any], last: list[Any]) -> Any:
        arguments = [*first, INT32(self.size), self.lane_mask, *last]
        return self.call_intrinsic(f"masked.{name}", result, arguments, suffix=".p0")

    # --- LLVM intrinsics ---

    def call_intrinsic(self, name: str, result: Any, arguments: list[Any], suffix: str = "") -> Any:
        full_name = f"llvm.{name}.v{self.lanes}f{8 * self.size}{suffix}"
        function = self.module.globals.get(full_name)
        if function is None:
            function_type = ir.FunctionType(result, [argument.type for argument in arguments])
            function = ir.Function(self.module, function_type, full_name)
        return self.builder.call(function, arguments)

    def fma(self, x: Vec, y: Vec | float, z: Vec | float) -> Vec:
        """x · y + z, rounded once where the machine can."""
        values = [self.as_vec(operand).value for operand in (x, y, z)]
        return Vec(self, self.call_intrinsic("fmuladd", self.vector, values))

    def abs(self, x: Vec) -> Vec:
        return Vec(self, self.call_intrinsic("fabs", self.vector, [x.value]))

    def sqrt(self, x: Vec) -> Vec:
        return Vec(self, self.call_intrinsic("sqrt", self.vector, [x.value]))

    # --- compilation ---

    def build(self) -> dict[str, CompiledFunction]:
        """Machine code of every function, by name."""
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
        code = self.code
        if code.lane_mask is not None:  # masked lanes add zero
            value = Vec(code, code.builder.select(code.lane_mask, value.value, code.as_vec(0.0).value))
        code.builder.store(code.builder.fadd(code.builder.load(self.pointer), value.value), self.pointer)

    def broadcast(self) -> Vec:
        """The sum of all lanes, in every lane. Halves are added until one lane is left."""
        builder, width = self.code.builder, self.code.lanes
        part = builder.load(self.pointer)
        while width > 1:
            width //= 2
            indices = ir.VectorType(INT32, width)
            low, high = (ir.Constant(indices, list(range(start, start + width))) for start in (0, width))
            part = builder.fadd(*(builder.shuffle_vector(part, part, half) for half in (low, high)))
        return self.code.broadcast(builder.extract_element(part, INT32(0)))


class CompiledFunction:
    """A C function of 64-bit integers. It runs without the global interpreter lock."""

    def __init__(self, engine: Any, name: str, num_arguments: int):
        self.engine = engine  # owns the machine code
        self.address = engine.get_function_address(name)
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * num_arguments)(self.address)

    def __call__(self, *arguments: int) -> None:
        self._call(*arguments)


def run(function: CompiledFunction, argument_lists: Sequence[Sequence[int]], threads: int) -> None:
    """Call `function` with the address of each list of integers. Returns when all calls are done."""
    if not argument_lists:
        return
    num_calls, list_bytes = len(argument_lists), 8 * len(argument_lists[0])
    words = array("q", argument_lists[0] if num_calls == 1 else [word for each in argument_lists for word in each])
    start = words.buffer_info()[0]
    addresses, threads = range(start, start + num_calls * list_bytes, list_bytes), min(threads, num_calls)
    if threads == 1:
        _call_at_addresses(function, addresses)
    elif (run_on_openmp := _find_openmp()) is not None:
        run_on_openmp(function.address, start, list_bytes, num_calls, threads)
    else:
        shares = [addresses[worker::threads] for worker in range(threads)]
        list(_get_thread_pool(os.getpid()).map(_call_at_addresses, [function] * threads, shares))


def _call_at_addresses(function: CompiledFunction, addresses: Sequence[int]) -> None:
    for address in addresses:
        function(address)


@thread_safe_cache
def _get_thread_pool(process: int) -> ThreadPoolExecutor:
    """One pool per process, since a fork does not copy threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="seqwise-scan")


@thread_safe_cache
def _find_openmp() -> Callable[[int, int, int, int, int], None] | None:
    """A function that makes the calls on the threads of the OpenMP library that PyTorch has loaded, or None. It
    uses GCC's interface, `GOMP_parallel`, which LLVM's library has too."""
    if "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        library = ctypes.CDLL(None)
        parallel = library.GOMP_parallel
        queries = (library.omp_get_thread_num, library.omp_get_num_threads)
        query_addresses = [ctypes.cast(query, ctypes.c_void_p).value or 0 for query in queries]
    except (AttributeError, OSError, TypeError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    worker = _compile_worker()

    def run_on_openmp(function: int, start: int, list_bytes: int, num_calls: int, threads: int) -> None:
        words = array("q", [function, start, list_bytes, num_calls, *query_addresses])
        parallel(worker.address, words.buffer_info()[0], threads, 0)

    return run_on_openmp


def _compile_worker() -> CompiledFunction:
    """The function of each thread: every n-th call, where n threads were started, possibly fewer than requested."""
    code, query_type = Code("float"), ir.FunctionType(INT32, []).as_pointer()
    with code.function("worker", 1) as (words,):
        function, start, list_bytes, num_calls, *queries = (code.load_word(words, index) for index in range(6))
        results = [code.builder.call(code.builder.inttoptr(query.value, query_type), []) for query in queries]
        thread, count = (Int(code, code.builder.sext(result, INT64)) for result in results)
        with code.loop(thread, num_calls, count) as index:
            code.call(function, start + index * list_bytes)
    return code.build()["worker"]
