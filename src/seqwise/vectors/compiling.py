"""The child process of `machine_code`: compiles one loop with numba and writes the machine code into a file.

    python -m seqwise.vectors.compiling MODULE LOOP KINDS FILE

The file can be mapped anywhere and needs nothing from outside; a loop that would (a logarithm is a function of the
system's library) is refused, and the file says so. It knows nothing of what a loop does. Importing this imports numba.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import cfunc, jit, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from seqwise.vectors.machine_code import DIGEST, HEAD, REFUSED, digest

WORD = ir.IntType(64)
ALIGNED = 64  # bytes: the widest constant a processor loads

# LLVM turns loops that clear or copy memory into calls of these two, which the system's library has in other programs.
LIBRARY = """
define ptr @memset(ptr %to, i32 %value, i64 %count) {
  %byte = trunc i32 %value to i8
  call {ptr, i64} asm sideeffect "rep stosb", "={di},={cx},0,1,{al},~{memory}"(ptr %to, i64 %count, i8 %byte)
  ret ptr %to
}
define ptr @memcpy(ptr %to, ptr %from, i64 %count) {
  call {ptr, ptr, i64} asm sideeffect "rep movsb", "={di},={si},={cx},0,1,2,~{memory}"(ptr %to, ptr %from, i64 %count)
  ret ptr %to
}
"""

# ELF, the format of object files: System V Application Binary Interface, chapter 4, and its AMD64 supplement.
SECTION, SYMBOL, RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
CONTENT, SYMBOLS, RELOCATIONS = 1, 2, 4  # types of sections
WRITABLE, LOADED = 1, 2  # flags of sections
RELATIVE = (2, 4)  # R_X86_64_PC32, R_X86_64_PLT32: 32-bit distances


def object_code(module: str, name: str, kinds: str) -> tuple[bytes, str]:
    """The loop as an object file, and the name of its C function, which takes the address of the words."""
    known, unpack = getattr(import_module(module), name), unpacker(kinds)
    # Afresh: numba's own cache does not notice when a piece from another module has changed.
    loop = jit(**known.targetoptions)(known.py_func)

    @cfunc(types.void(types.CPointer(types.int64)), error_model="numpy")
    def entry(words):
        loop(*unpack(words))

    code = llvm.parse_assembly(entry.inspect_llvm())
    for one in (*code.functions, *code.global_variables):
        if not one.is_declaration and one.name != entry.native_name:
            one.linkage = "internal"
    llvm.initialize_native_asmparser()
    code.link_in(llvm.parse_assembly(LIBRARY))
    host = llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=3, reloc="pic", codemodel="small"
    )
    # Now that nothing can be called from elsewhere, numba's handling of errors is seen never to run, and goes away; the
    # rest stays as numba made it.
    passes = llvm.create_new_module_pass_manager()
    passes.add_ipsccp_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(code, llvm.create_pass_builder(host, llvm.create_pipeline_tuning_options()))
    return host.emit_object(code), entry.native_name


def unpacker(kinds: str) -> Any:
    """A function of compiled code: words → the arguments they stand for (see `machine_code`)."""
    kind = _tuple(iter(kinds.split()))

    @intrinsic
    def unpack(typing_context, words):
        def emit(context, builder, signature, arguments):
            return _value(context, builder, kind, _words(builder, arguments[0]))

        return kind(words), emit

    return unpack


def _tuple(kinds: Iterator[str]) -> types.Tuple:
    found: list[Any] = []
    for kind in kinds:
        if kind == ")":
            break
        if kind == "(":
            found.append(_tuple(kinds))
        elif kind.endswith("[]"):
            found.append(types.Array(getattr(types, kind.removesuffix("[]")), 1, "C"))
        else:
            found.append(types.boolean if kind == "bool" else getattr(types, kind))
    return types.Tuple(found)


def _words(builder, address) -> Iterator[Any]:
    place = 0
    while True:
        yield builder.load(builder.gep(address, [WORD(place)]))
        place += 1


def _value(context, builder, kind, words):
    """Instructions that make a value of the next words."""
    if isinstance(kind, (types.Tuple, types.UniTuple)):
        return context.make_tuple(builder, kind, [_value(context, builder, part, words) for part in kind.types])
    word, form = next(words), context.get_value_type(kind)
    if isinstance(kind, types.Array):
        array, number = context.make_array(kind)(context, builder), context.get_data_type(kind.dtype)
        size = WORD(context.get_abi_sizeof(number))
        data = builder.inttoptr(word, number.as_pointer())
        populate_array(array, data=data, shape=[next(words)], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()
    if isinstance(kind, types.Float):
        wide = builder.bitcast(word, ir.DoubleType())
        return wide if kind.bitwidth == 64 else builder.fptrunc(wide, form)
    return word if form.width == 64 else builder.trunc(word, form)


def linked(data: bytes, name: str) -> bytes:
    """An object file → what is mapped and called; complains about code that needs something from outside."""
    (table,), (size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
    sections = [SECTION.unpack_from(data, table + number * size) for number in range(count)]
    body, places = bytearray(HEAD.size), {}
    for number, (_, kind, flags, _, offset, length, *_) in enumerate(sections):
        if flags & LOADED and flags & WRITABLE and length:
            raise ValueError("the code has variables of its own")
        if flags & LOADED and kind == CONTENT:
            body += bytes(-len(body) % ALIGNED)
            places[number] = len(body)
            body += data[offset : offset + length]
    symbols, names = _symbols(data, sections)
    for _, kind, _, _, offset, length, _, target, *_ in sections:
        if kind == RELOCATIONS and target in places:
            for place, info, more in RELOCATION.iter_unpack(data[offset : offset + length]):
                section, value = symbols[info >> 32]
                if info & 0xFFFFFFFF not in RELATIVE or section not in places:
                    raise ValueError("the code needs something from outside")
                place += places[target]
                struct.pack_into("<i", body, place, places[section] + value + more - place)
    section, value = symbols[names.index(name.encode())]
    HEAD.pack_into(body, 0, bytes(DIGEST), places[section] + value)
    body[:DIGEST] = digest(bytes(body[DIGEST:]))
    return bytes(body)


def _symbols(data: bytes, sections: list[tuple]) -> tuple[list[tuple[int, int]], list[bytes]]:
    """(section, place in it) of each symbol, and their names."""
    (_, _, _, _, offset, length, strings, *_) = next(one for one in sections if one[1] == SYMBOLS)
    begin, size = sections[strings][4:6]
    text = data[begin : begin + size]
    found = list(SYMBOL.iter_unpack(data[offset : offset + length]))
    names = [text[name : text.index(b"\0", name)] for name, *_ in found]
    return [(section, value) for _, _, _, section, value, _ in found], names


def write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner alone."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def main(module: str, name: str, kinds: str, path: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # LLVM ends the process where it does not know how to go on
    try:
        content = linked(*object_code(module, name, kinds))
    except (OSError, MemoryError):  # may go better another time
        raise
    except Exception:
        content = REFUSED
    write(Path(path), content)


if __name__ == "__main__":
    main(*sys.argv[1:])
