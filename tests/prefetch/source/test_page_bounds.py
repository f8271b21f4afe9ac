"""A record is found up to the last byte that its page and its file have, and not a byte further."""

from __future__ import annotations

import gc
import struct
from typing import Any

import numpy as np
import pytest

from prefetch._kernels import _c
from prefetch._transform.options import Transform
from prefetch.testing import encode_image

PAGE_BYTES = 256
LEAF, LONG_PAGES = 0x02, 0x04
LONG_VALUE = 0x01
NODE = 8  # bytes before a key
META = bytes(PAGE_BYTES)  # the second of the two pages that hold no value


def page(number: int, kind: int, lower: int, nodes: dict[int, bytes], **own: Any) -> bytes:
    """Return a page: its head, the offsets of its nodes, and the nodes."""
    whole = bytearray(PAGE_BYTES)
    struct.pack_into("<QHHHH", whole, 0, number, 0, kind, lower, min(nodes, default=PAGE_BYTES))
    offsets = own.get("offsets", list(nodes))
    struct.pack_into(f"<{len(offsets)}H", whole, 16, *offsets)
    for offset, node in nodes.items():
        whole[offset : offset + len(node)] = node
    return bytes(whole)


def node(key: bytes, value: bytes, *, size: int | None = None, flags: int = 0) -> bytes:
    """Return a node: the size of its value, its flags, its key and what it holds."""
    return struct.pack("<IHH", len(value) if size is None else size, flags, len(key)) + key + value


def leaf(at: int, content: bytes) -> bytes:
    """Return page 0, a leaf of one record at an offset."""
    return page(0, LEAF, 18, {at: content})


def long_leaf(leads_to: int, size: int, *, at: int = 200) -> bytes:
    return leaf(at, node(b"key", struct.pack("<Q", leads_to), size=size, flags=LONG_VALUE))


def long_page(number: int, num_pages: int) -> bytes:
    return struct.pack("<QHHI", number, 0, LONG_PAGES, num_pages) + bytes(PAGE_BYTES - 16)


def find(file: bytes, *, number: int = 0, slot: int = 0) -> tuple[int, int, int, int] | None:
    """Return where the key and the value of a record are; None where there is no such record."""
    spans = np.empty((4, 1), np.int64)
    where = np.array([number]), np.array([slot])
    bad = _c.locate(memoryview(file), PAGE_BYTES, *where, spans)
    assert bad in (-1, 0)
    return None if bad == 0 else tuple(spans[:, 0].tolist())


@pytest.mark.parametrize(("key_size", "value_size"), [(0, 0), (5, 0), (0, 6), (5, 6), (48, 0)])
def test_a_record_may_end_with_its_page_but_neither_key_nor_value_behind_it(
    key_size: int, value_size: int
) -> None:
    at = PAGE_BYTES - NODE - key_size - value_size
    content = node(bytes(key_size), bytes(value_size))
    key = at + NODE

    assert find(leaf(at, content)) == (key, key_size, key + key_size, value_size)
    longer = node(bytes(key_size), bytes(value_size), size=value_size + 1)
    assert find(leaf(at, longer) + bytes(PAGE_BYTES)) is None
    longer = struct.pack("<IHH", 0, 0, key_size + value_size + 1) + content[NODE:]
    assert find(leaf(at, longer) + bytes(PAGE_BYTES)) is None


def test_a_record_may_begin_behind_the_offsets_but_not_among_them_nor_in_the_last_bytes() -> None:
    content = node(b"k", b"v")

    assert find(leaf(18, content)) == (26, 1, 27, 1)
    assert find(leaf(PAGE_BYTES - NODE, node(b"", b""))) == (PAGE_BYTES, 0, PAGE_BYTES, 0)
    for at in (0, 15, 16, 17):
        whole = page(0, LEAF, 18, {18: content}, offsets=[at])
        assert find(whole) is None
    for at in (PAGE_BYTES - NODE + 1, PAGE_BYTES, 2**16 - 1):
        whole = page(0, LEAF, 18, {}, offsets=[at])
        assert find(whole + bytes(2**16)) is None


@pytest.mark.parametrize("slots", [1, 2, 30, 116])
def test_there_are_as_many_records_as_offsets(slots: int) -> None:
    last = PAGE_BYTES - NODE  # all are the same record, so that as many fit as can
    whole = page(0, LEAF, 16 + 2 * slots, {last: node(b"", b"")}, offsets=[last] * slots)

    assert find(whole, slot=slots - 1) is not None
    assert find(whole, slot=slots) is None
    if slots < 116:
        nodes, offsets = {last: node(b"", b"")}, [last] * (slots + 1)
        odd = page(0, LEAF, 16 + 2 * slots + 1, nodes, offsets=offsets)
        assert find(odd, slot=slots) is None


@pytest.mark.parametrize("slot", [-1, 120, 128, 2**31, 2**62, 2**63 - 9, -(2**63), -(2**63) + 8])
def test_an_offset_outside_of_the_page_is_none(slot: int) -> None:
    """Twice such a number, and 16, is a place in the page where 64 bits wrap around."""
    whole = page(0, LEAF, 2**16 - 1, {}, offsets=[200] * 120)

    assert find(whole * 3, slot=slot) is None


def test_a_record_is_in_a_page_of_the_file_and_in_none_behind_it() -> None:
    leaves = [page(number, LEAF, 18, {200: node(b"key", b"value")}) for number in range(3)]
    whole = b"".join(leaves)

    assert [find(whole, number=number) for number in range(4)] == [
        (208, 3, 211, 5),
        (464, 3, 467, 5),
        (720, 3, 723, 5),
        None,
    ]
    for length in (2 * PAGE_BYTES, 3 * PAGE_BYTES - 1):
        assert find(whole[:length], number=1) == (464, 3, 467, 5)
        with memoryview(whole)[:length] as cut:
            spans = np.empty((4, 1), np.int64)
            place = np.array([2]), np.array([0])
            assert _c.locate(cut, PAGE_BYTES, *place, spans) == 0


@pytest.mark.parametrize("kind", [0, 0x01, 0x04, 0x08, 0x03, 0x06, 0x0A, 0x22, 0x42])
def test_a_page_that_is_no_leaf_of_plain_records_has_none(kind: int) -> None:
    assert find(page(0, kind, 18, {200: node(b"key", b"value")})) is None


def test_a_leaf_may_have_been_written_in_the_last_transaction() -> None:
    assert find(page(0, LEAF | 0x10, 18, {200: node(b"key", b"value")})) is not None


@pytest.mark.parametrize("number", [1, 2**8, 2**16, 2**24, 2**32, 2**40, 2**48, 2**56])
def test_a_page_that_says_another_number_has_no_records(number: int) -> None:
    assert find(page(number, LEAF, 18, {200: node(b"key", b"value")})) is None


@pytest.mark.parametrize("flags", [0x02, 0x04, 0x03, 0x05, 0x06, 0x07])
def test_several_values_of_a_key_are_no_value(flags: int) -> None:
    content = node(b"key", struct.pack("<Q", 2), flags=flags)

    assert find(leaf(200, content) + META + long_page(2, 1)) is None


@pytest.mark.parametrize("num_pages", [1, 2, 300])
def test_a_long_value_may_fill_its_pages_to_the_last_byte(num_pages: int) -> None:
    most = num_pages * PAGE_BYTES - 16
    pages = META + long_page(2, num_pages) + bytes((num_pages - 1) * PAGE_BYTES)

    for size in (0, 1, most):
        assert find(long_leaf(2, size) + pages) == (208, 3, 2 * PAGE_BYTES + 16, size)
    for size in (most + 1, most + 16, 2**31, 2**32 - 1):
        assert find(long_leaf(2, size) + pages + bytes(PAGE_BYTES)) is None


def test_a_long_value_whose_pages_end_behind_the_file_is_none() -> None:
    pages = META + long_page(2, 2) + bytes(PAGE_BYTES)
    assert find(long_leaf(2, 9) + pages) == (208, 3, 2 * PAGE_BYTES + 16, 9)
    for num_pages in (3, 2**16, 2**32 - 1):
        pages = META + long_page(2, num_pages) + bytes(PAGE_BYTES)
        assert find(long_leaf(2, 9) + pages) is None


@pytest.mark.parametrize("leads_to", [0, 1, 3, 4, 2**31, 2 + 2**32, 2 + 2**56, 2**64 - 1])
def test_a_long_value_is_in_a_page_of_its_kind_that_says_its_number(leads_to: int) -> None:
    pages = long_page(1, 1) + long_page(2, 1) + long_page(4, 1) + long_page(4, 1)[:-1]

    assert find(long_leaf(2, 9) + pages) == (208, 3, 2 * PAGE_BYTES + 16, 9)
    assert find(long_leaf(leads_to, 9) + pages) is None


def test_a_long_value_of_no_pages_has_no_bytes() -> None:
    assert find(long_leaf(2, 0) + META + long_page(2, 0)) is None
    assert find(long_leaf(2, 1) + META + long_page(2, 0) + bytes(PAGE_BYTES)) is None


def test_the_number_of_a_long_values_page_may_end_with_the_leaf_and_not_behind_it() -> None:
    last = PAGE_BYTES - NODE - 3 - 8

    assert find(long_leaf(2, 9, at=last) + META + long_page(2, 1)) is not None
    for late in range(1, 9):  # what the page behind the leaf begins with would complete it
        cut = long_leaf(2, 9, at=last + late)[:PAGE_BYTES]
        assert find(cut + META + long_page(2, 1)) is None
        assert find(cut + long_page(1, 1) + long_page(2, 1)) is None


def records(values: list[bytes]) -> bytes:
    """Return a file of leaves with a record each, numbered from 0."""
    return b"".join(
        page(number, LEAF, 18, {100: node(b"%03d" % number, value)})
        for number, value in enumerate(values)
    )


def test_records_are_found_in_any_leaf_from_any_other() -> None:
    """Whatever leaf was found before: the next one, one before it, one further on."""
    num = 70
    image = [encode_image(np.full((1, 1, 1), i, np.uint8), label=i) for i in range(num)]
    numbers = np.arange(num, dtype=np.uint8)
    memory = memoryview(records(image))
    pairs = [record for first in range(num) for record in (first, (first * 37 + 11) % num)]
    wanted = np.array([*range(num), *reversed(range(num)), *pairs], np.int64)
    spans = np.zeros((4, len(wanted)), np.int64)
    data, labels = np.zeros((len(wanted), 1, 1, 1), np.float32), np.zeros(len(wanted), np.int64)
    part = wanted, spans, np.zeros((len(wanted), 3), np.uint32), data, labels
    recipe = Transform(train=False).recipe

    results = _c.fill_records(memory, PAGE_BYTES, numbers, numbers, recipe, [part])

    assert results == [(-1, [], b"".join(b"%03d" % record for record in wanted))]
    assert labels.tolist() == wanted.tolist()
    assert data.ravel().tolist() == wanted.tolist()
    sizes = [len(image[record]) for record in wanted]
    assert spans.tolist() == [
        [record * PAGE_BYTES + 108 for record in wanted],
        [3] * len(wanted),
        [record * PAGE_BYTES + 111 for record in wanted],
        sizes,
    ]


@pytest.mark.parametrize("place", [0, 31, 32, 33, 63, 64, 99])
def test_the_first_record_that_is_not_found_is_named_among_many(place: int) -> None:
    numbers = np.arange(3, dtype=np.uint8)
    memory = memoryview(records([encode_image(np.zeros((1, 1, 1), np.uint8), label=0)] * 3))
    wanted = np.zeros(100, np.int64)
    wanted[[place, 99]] = 3
    spans, words = np.zeros((4, 100), np.int64), np.zeros((100, 3), np.uint32)
    data = np.full((100, 1, 1, 1), 7, np.float32)
    recipe = Transform(train=False).recipe

    part = wanted, spans, words, data, None
    results = _c.fill_records(memory, PAGE_BYTES, numbers, numbers, recipe, [part])

    assert results == [(place, [], b"")]
    assert (data == 7).all()


def keys_moved_to(label: int, *, row: int) -> bytes:
    """Fill a row whose label is written where the begin or the size of its key stands."""
    value = encode_image(np.zeros((1, 1, 1), np.uint8), label=label)
    numbers, spans = np.arange(2, dtype=np.uint8), np.zeros((4, 1), np.int64)
    where = memoryview(records([value, value])), PAGE_BYTES, numbers, numbers
    data, words = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 3), np.uint32)
    part = np.array([0]), spans, words, data, spans[row]
    ((_, _, keys),) = _c.fill_records(*where, Transform(train=False).recipe, [part])
    return keys


def test_a_key_that_moved_meanwhile_is_inside_of_the_file_or_refused() -> None:
    """Where it is stands in the caller's array, which somebody else may write to."""
    end = 2 * PAGE_BYTES
    assert len(keys_moved_to(end - 3, row=0)) == 3
    assert len(keys_moved_to(0, row=0)) == 3
    assert len(keys_moved_to(end - 108, row=1)) == end - 108
    assert keys_moved_to(0, row=1) == b""
    for label, row in ((end - 2, 0), (end + 1, 0), (-1, 0), (-(2**31), 0), (end - 107, 1), (-1, 1)):
        with pytest.raises(ValueError, match="a span lies outside of the memory"):
            keys_moved_to(label, row=row)


def test_nothing_is_left_of_what_was_refused() -> None:
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        with pytest.raises(ValueError, match="a span lies outside"):
            keys_moved_to(-1, row=0)
    gc.collect()
    assert len(gc.get_objects()) < before + 50


def test_there_are_as_many_places_as_pages_also_where_there_are_none() -> None:
    whole = memoryview(leaf(200, node(b"key", b"value")))
    none, one = np.empty(0, np.int64), np.zeros(1, np.int64)
    assert _c.locate(whole, PAGE_BYTES, none, none, np.empty((4, 0), np.int64)) == -1
    for pages, slots in ((none, one), (one, none), (one, np.zeros(2, np.int64))):
        spans = np.zeros((4, len(pages)), np.int64)
        with pytest.raises(TypeError, match="slots must be int64, as long as the others"):
            _c.locate(whole, PAGE_BYTES, pages, slots, spans)


@pytest.mark.parametrize("page_bytes", [256, 4096, 65536])
def test_a_page_has_256_bytes_to_64_kib(page_bytes: int) -> None:
    whole = struct.pack("<QHHHHH", 0, 0, LEAF, 18, 200, 200) + bytes(182) + node(b"key", b"value")
    spans, first = np.zeros((4, 1), np.int64), np.array([0])
    memory = memoryview(whole + bytes(65537))
    assert _c.locate(memory, page_bytes, first, first, spans) == -1
    assert spans.ravel().tolist() == [208, 3, 211, 5]


@pytest.mark.parametrize("page_bytes", [-1, 0, 255, 65537, 2**40])
def test_what_has_no_such_size_is_no_page(page_bytes: int) -> None:
    spans, first = np.zeros((4, 1), np.int64), np.array([0])
    with pytest.raises(ValueError, match="page_bytes must be 256 to 65536"):
        _c.locate(memoryview(bytes(2**17)), page_bytes, first, first, spans)


def test_the_shape_of_a_record_is_found_in_its_leaf() -> None:
    values = [encode_image(np.zeros((1, 2, size), np.uint8), label=0) for size in (3, 4, 5)]
    numbers, memory = np.arange(3, dtype=np.uint16), memoryview(records(values))
    for is_uint8 in (False, True):
        found = [
            _c.raw_shape(memory, PAGE_BYTES, numbers, numbers, record, is_uint8)
            for record in range(-1, 4)
        ]
        assert found == [None, (1, 2, 3), (1, 2, 4), (1, 2, 5), None]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({1: 255}, "page_bytes must be"),
        ({2: np.arange(2)}, "leaves must be of unsigned"),
        ({3: np.arange(2.0)}, "firsts must be of unsigned"),
        ({2: np.arange(1, dtype=np.uint8)}, "differ in length"),
        ({3: np.arange(3, dtype=np.uint8)}, "differ in length"),
        ({0: "text"}, "bytes-like"),
    ],
)
def test_an_index_that_is_none_is_refused_although_nothing_is_to_be_filled(
    changed: dict[int, Any], message: str
) -> None:
    numbers = np.arange(2, dtype=np.uint8)
    right: dict[int, Any] = {0: memoryview(bytes(512)), 1: PAGE_BYTES, 2: numbers, 3: numbers}
    memory, page_bytes, leaves, firsts = (right | changed).values()
    recipe = Transform(train=False).recipe
    with pytest.raises((TypeError, ValueError), match=message):
        _c.fill_records(memory, page_bytes, leaves, firsts, recipe, [])
    with pytest.raises((TypeError, ValueError), match=message):
        _c.raw_shape(memory, page_bytes, leaves, firsts, 0, False)
