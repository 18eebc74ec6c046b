"""Reads a model's weights from the ONNX file format, and writes a model.

An ONNX file is a protocol buffer. Evervec needs a dozen of its fields and encodes them itself: the
`onnx` package would add 50 MB to the install. The field numbers are those of onnx.proto, which
never change their meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MICROSOFT = "com.microsoft"
"""the domain of onnxruntime's own operators"""

FLOAT, INT8, INT32, INT64 = 1, 3, 6, 7
_TYPES: dict[int, np.dtype[Any]] = {
    FLOAT: np.dtype(np.float32),
    INT8: np.dtype(np.int8),
    INT64: np.dtype(np.int64),
}
_CODES = {dtype: code for code, dtype in _TYPES.items()}
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT = 1, 2
_VARINT, _BYTES, _FIXED32 = 0, 2, 5


def read_weights(model: bytes) -> dict[str, NDArray[Any]]:
    """The named constants of a model, as views of its bytes. Types that evervec does not need are
    left out."""
    weights = {}
    for graph in _messages(memoryview(model), 7):
        for tensor in _messages(graph, 5):
            name, dims, dtype, raw = "", list[int](), None, memoryview(b"")
            for number, value in _fields(tensor):
                if isinstance(value, int):
                    if number == 1:
                        dims.append(value)
                    elif number == 2:
                        dtype = _TYPES.get(value)
                elif number == 8:
                    name = bytes(value).decode()
                elif number == 9:
                    raw = value
            if dtype is not None:
                weights[name] = np.frombuffer(raw, dtype).reshape(dims)
    return weights


class Graph:
    """Builds a model. Its inputs are integers, one row per text."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self._parts = [
            _bytes(11, _value_info(name, INT64, ("batch", "sequence"))) for name in inputs
        ]

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant; returns its name."""
        dims = b"".join(_int(1, size) for size in array.shape)
        raw = np.ascontiguousarray(array).tobytes()
        head = dims + _int(2, _CODES[array.dtype]) + _text(8, name)
        self._parts.append(_bytes(5, head + _bytes(9, raw)))
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str,
        domain: str = "",
        **attributes: float,
    ) -> str:
        """Add an operation; returns the name of its output."""
        node = b"".join(_text(1, name) for name in inputs)
        node += _text(2, output) + _text(4, operator) + _text(7, domain)
        for name, value in attributes.items():
            if isinstance(value, int):
                content = _int(3, value) + _int(20, _ATTRIBUTE_INT)
            else:
                content = _float(2, value) + _int(20, _ATTRIBUTE_FLOAT)
            node += _bytes(5, _text(1, name) + content)
        self._parts.append(_bytes(1, node))
        return output

    def model(self, output: str, shape: Sequence[int | str]) -> bytes:
        """The file of a model that returns the named output, of a named or known shape."""
        info = _value_info(output, FLOAT, shape)
        graph = b"".join(self._parts) + _text(2, "evervec") + _bytes(12, info)
        opsets = b"".join(
            _bytes(8, _text(1, domain) + _int(2, version))
            for domain, version in (("", 17), (MICROSOFT, 1))
        )
        return _int(1, 8) + opsets + _bytes(7, graph)


def _value_info(name: str, code: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(
        _bytes(1, _text(2, size) if isinstance(size, str) else _int(1, size)) for size in shape
    )
    return _text(1, name) + _bytes(2, _bytes(1, _int(1, code) + _bytes(2, dims)))


# protocol buffers
def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in _fields(message):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key & 7 == _VARINT:
            number, at = _read_varint(message, at)
            yield key >> 3, number
            continue
        size, at = _read_varint(message, at) if key & 7 == _BYTES else (_FIXED[key & 7], at)
        yield key >> 3, message[at : at + size]
        at += size


_FIXED = {1: 8, _FIXED32: 4}


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED32) + struct.pack("<f", value)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode())
