"""Runs PTX on the CPU: the part of it that the project's kernels compile to, one thread at a time.

Every access is checked for its bounds and alignment. Arithmetic of floats is NumPy's, in the type
that the instruction names, and flushes subnormals where it says ``.ftz``. An instruction that is
not known raises, so that nothing is passed over; so does a fused multiply-add, which rounds once
less than the host does.
"""

from __future__ import annotations

import operator
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Value: TypeAlias = Any
"""What a register holds: an int of its bits, a NumPy float, or a bool."""

_MOST_STEPS: Final = 1_000_000
_LEAST_NORMAL: Final = np.float32(2.0**-126)
_FLOATS: Final[dict[str, type[np.floating[Any]]]] = {"f32": np.float32, "f64": np.float64}
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}

_INTEGER_ARITHMETIC: Final[dict[str, Callable[..., int]]] = {
    **_ARITHMETIC,
    "div": operator.floordiv,
    "rem": operator.mod,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "not": operator.invert,
    "neg": operator.neg,
    "min": min,
    "max": max,
}


class PtxError(RuntimeError):
    """A kernel did what it must not do, or what is not known here."""


class Memory:
    """The memory that kernels reach, by address."""

    def __init__(self) -> None:
        self._next = 0x100000000
        self._regions: list[tuple[int, NDArray[np.uint8]]] = []

    def place(self, array: NDArray[Any]) -> int:
        """Give an array an address, apart from all others."""
        view = array.reshape(-1).view(np.uint8)
        address = self._next
        self._regions.append((address, view))
        self._next += (view.nbytes // 4096 + 17) * 4096
        return address

    def at(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes at an address.

        Raises:
            PtxError: They are not all of one array, or not aligned.
        """
        if address % nbytes:
            raise PtxError(f"{nbytes} bytes at {address:#x} are not aligned")
        for start, view in self._regions:
            if start <= address and address + nbytes <= start + view.nbytes:
                return view[address - start : address - start + nbytes]
        raise PtxError(f"{nbytes} bytes at {address:#x} are out of bounds")


@dataclass(frozen=True)
class _Instruction:
    predicate: str
    is_negated: bool
    words: tuple[str, ...]
    operands: tuple[str, ...]


class Kernel:
    """A kernel of a PTX text.

    Args:
        ptx: The text.
        name: The kernel's.

    Attributes:
        executed: Instructions executed until now.
        seen: Those that occurred.
    """

    def __init__(self, ptx: str, name: str) -> None:
        entry = re.search(rf"\.entry\s+{name}\((.*?)\)[^{{]*\{{(.*?)\n\}}", ptx, re.DOTALL)
        if entry is None:
            raise PtxError(f"there is no kernel {name}")
        self._parameters = re.findall(r"\.param[^,]*?(\w+)\s*(?:,|$)", entry[1])
        self._code, self._labels = _parse(entry[2])
        self.executed = 0
        self.seen: set[str] = set()

    def launch(
        self, memory: Memory, grid: Sequence[int], block: Sequence[int], values: Sequence[Value]
    ) -> None:
        """Run all threads, one after the other."""
        columns, rows = (*grid, 1, 1)[:2]
        parameters = dict(zip(self._parameters, values, strict=True))
        special = {
            "%ntid.x": block[0],
            "%nctaid.x": columns,
            "%nctaid.y": rows,
        }
        for row in range(rows):
            for column in range(columns):
                for thread in range(block[0]):
                    place = {"%ctaid.x": column, "%ctaid.y": row, "%tid.x": thread}
                    self._run(_Thread(memory, parameters, {**special, **place}))

    def _run(self, thread: _Thread) -> None:
        at = 0
        for _ in range(_MOST_STEPS):
            instruction = self._code[at]
            at += 1
            self.executed += 1
            predicate = instruction.predicate
            if predicate and bool(thread.registers[predicate]) == instruction.is_negated:
                continue
            self.seen.add(".".join(instruction.words))
            if instruction.words[0] == "ret":
                return
            if instruction.words[0] == "bra":
                at = self._labels[instruction.operands[0]]
            else:
                thread.execute(instruction)
        raise PtxError("a thread does not end")


def _parse(body: str) -> tuple[list[_Instruction], dict[str, int]]:
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    # NVRTC puts what was inline assembly between comments and braces of its own.
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", body, flags=re.DOTALL)
    for line in (line.strip() for line in text.split("\n")):
        if not line or line.startswith(".") or line in "{}":
            continue
        label = re.fullmatch(r"(\$?\w+):", line)
        if label is not None:
            labels[label[1]] = len(code)
            continue
        found = re.fullmatch(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);", line)
        if found is None:
            raise PtxError(f"not understood: {line}")
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{}\[\]]+", found[4])
        code.append(
            _Instruction(
                found[2] or "", found[1] == "!", tuple(found[3].split(".")), tuple(operands)
            )
        )
    return code, labels


class _Thread:
    """One thread's registers, and what it can do with them."""

    def __init__(
        self, memory: Memory, parameters: dict[str, Value], special: dict[str, int]
    ) -> None:
        self._memory = memory
        self._parameters = parameters
        self._special = special
        self.registers: dict[str, Value] = {}

    def execute(self, instruction: _Instruction) -> None:
        """Execute an instruction that is no jump.

        Raises:
            PtxError: It is not known, or does what it must not.
        """
        words, operands = instruction.words, instruction.operands
        name, kind = words[0], words[-1]
        if name in ("ld", "st"):
            self._move(words, operands)
        elif name in ("mov", "cvta"):
            self.registers[operands[0]] = self._value(operands[1])
        elif name == "cvt":
            self._convert(words, operands)
        elif name == "setp":
            self._compare(words, operands)
        elif name == "selp":
            _, yes, no, condition = operands
            self.registers[operands[0]] = self._value(yes if self._value(condition) else no)
        elif kind in _FLOATS:
            self._compute_floats(words, operands)
        elif kind == "pred":
            values = [bool(self._value(operand)) for operand in operands[1:]]
            self.registers[operands[0]] = (
                not values[0] if name == "not" else bool(_ARITHMETIC[name](*values))
            )
        else:
            self._compute_integers(words, operands)

    def _value(self, operand: str) -> Value:
        if operand in self.registers:
            return self.registers[operand]
        if operand in self._special:
            return self._special[operand]
        if operand.startswith("0f"):
            return np.float32(struct.unpack(">f", bytes.fromhex(operand[2:]))[0])
        if operand.startswith("0d"):
            return np.float64(struct.unpack(">d", bytes.fromhex(operand[2:]))[0])
        return int(operand, 0)

    def _address(self, operand: str) -> int:
        base, _, offset = operand[1:-1].partition("+")
        return int(self._value(base.strip())) + (int(offset, 0) if offset else 0)

    def _move(self, words: tuple[str, ...], operands: tuple[str, ...]) -> None:
        kind = words[-1]
        if words[1] == "param":
            self.registers[operands[0]] = self._parameters[operands[1][1:-1]]
            return
        nbytes = _bits(kind) // 8
        target, source = operands
        registers = [
            part.strip() for part in (target if words[0] == "ld" else source).strip("{}").split(",")
        ]
        place = self._memory.at(
            self._address(source if words[0] == "ld" else target), nbytes * len(registers)
        )
        for number, register in enumerate(registers):
            part = place[number * nbytes : (number + 1) * nbytes]
            if words[0] == "st":
                part[:] = np.frombuffer(_to_bytes(self._value(register), kind), np.uint8)
            elif kind in _FLOATS:
                self.registers[register] = part.copy().view(_FLOATS[kind])[0]
            else:
                value = int.from_bytes(part.tobytes(), "little")
                # A load widens to the register by the sign of its type.
                self.registers[register] = (
                    _signed(value, kind) & _mask(64) if kind[0] == "s" else value
                )

    def _convert(self, words: tuple[str, ...], operands: tuple[str, ...]) -> None:
        to, start = words[-2], words[-1]
        value = self._value(operands[1])
        if to == "f16":
            if "rn" not in words:
                raise PtxError(f"rounds in another way: {'.'.join(words)}")
            with np.errstate(over="ignore"):
                half = np.float16(_as_float(value, np.float32))
            result: Value = int(half.view(np.uint16))
        elif to == "f32" and start == "f16":
            result = np.float32(np.uint16(value).view(np.float16))
        elif to == "f32":
            result = np.float32(_signed(value, start) if start[0] == "s" else value)
        elif start in _FLOATS:
            result = min(max(int(value), 0), _mask(_bits(to)))
        else:
            wide = _signed(value, start) if start[0] == "s" else value & _mask(_bits(start))
            result = wide & _mask(_bits(to))
        self.registers[operands[0]] = result

    def _compare(self, words: tuple[str, ...], operands: tuple[str, ...]) -> None:
        first, second = self._value(operands[1]), self._value(operands[2])
        kind = words[-1]
        if kind not in _FLOATS:
            first, second = (_integer(value, kind) for value in (first, second))
        elif "ftz" in words:
            first, second = _flushed(first), _flushed(second)
        self.registers[operands[0]] = bool(_ORDERS[words[1]](first, second))

    def _compute_floats(self, words: tuple[str, ...], operands: tuple[str, ...]) -> None:
        name, kind = words[0], _FLOATS[words[-1]]
        values = [_as_float(self._value(operand), kind) for operand in operands[1:]]
        if "ftz" in words:
            values = [_flushed(value) for value in values]
        with np.errstate(all="ignore"):
            if name == "neg":
                result = -values[0]
            elif name == "abs":
                result = abs(values[0])
            elif name in ("add", "sub", "mul"):
                result = kind(_ARITHMETIC[name](*values))
            else:
                raise PtxError(f"not known, or rounds once less: {'.'.join(words)}")
        self.registers[operands[0]] = _flushed(result) if "ftz" in words else result

    def _compute_integers(self, words: tuple[str, ...], operands: tuple[str, ...]) -> None:
        name, kind = words[0], words[-1]
        bits = _bits(kind)
        values = [_integer(self._value(operand), kind) for operand in operands[1:]]
        if {"sat", "cc"} & set(words):
            raise PtxError(f"not known: {'.'.join(words)}")
        if name == "mad":
            result = values[0] * values[1]
        elif name in _INTEGER_ARITHMETIC:
            result = _INTEGER_ARITHMETIC[name](*values)
        else:
            raise PtxError(f"not known: {'.'.join(words)}")
        if "wide" in words:
            bits *= 2
        elif "hi" in words:
            result >>= bits
        if name == "mad":
            result += values[2]
        self.registers[operands[0]] = result & _mask(bits)


def _bits(kind: str) -> int:
    return int(kind[1:])


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _signed(value: int, kind: str) -> int:
    bits = _bits(kind)
    value = int(value) & _mask(bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def _integer(value: Value, kind: str) -> int:
    """Return a register's bits as the number that an instruction's type makes of them."""
    if isinstance(value, np.floating):
        value = int.from_bytes(value.tobytes(), "little")
    return _signed(value, kind) if kind[0] == "s" else int(value) & _mask(_bits(kind))


def _as_float(value: Value, kind: type[np.floating[Any]]) -> Any:
    """Return a register as a float, whose bits may have come by way of an integer's type."""
    if isinstance(value, np.floating):
        return kind(value)
    return np.frombuffer(int(value).to_bytes(np.dtype(kind).itemsize, "little"), kind)[0]


def _to_bytes(value: Value, kind: str) -> bytes:
    if kind in _FLOATS:
        return bytes(_as_float(value, _FLOATS[kind]).tobytes())
    return _integer(value, f"u{_bits(kind)}").to_bytes(_bits(kind) // 8, "little")


def _flushed(value: Any) -> Any:
    if isinstance(value, np.float32) and value != 0 and abs(value) < _LEAST_NORMAL:
        return np.copysign(np.float32(0), value)
    return value
