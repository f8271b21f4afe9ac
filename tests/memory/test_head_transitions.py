"""The head's transitions: every cell of the table."""

from __future__ import annotations

import itertools

import pytest

from memory._synced.head_transitions import Call, Head, Transition, Work, transition

U, CPU, GPU, SYNCED = Head
NONE, ZERO_HOST, ZERO_DEVICE, DOWN, UP = Work

# Caffe's table as its reference gives it, and the calls that Caffe has not; None is a refusal.
CELLS: dict[Call, dict[Head, tuple[Work, Head] | None]] = {
    Call.CPU_DATA: {
        U: (ZERO_HOST, CPU),
        CPU: (NONE, CPU),
        GPU: (DOWN, SYNCED),
        SYNCED: (NONE, SYNCED),
    },
    Call.MUTABLE_CPU_DATA: {
        U: (ZERO_HOST, CPU),
        CPU: (NONE, CPU),
        GPU: (DOWN, CPU),
        SYNCED: (NONE, CPU),
    },
    Call.GPU_DATA: {
        U: (ZERO_DEVICE, GPU),
        CPU: (UP, SYNCED),
        GPU: (NONE, GPU),
        SYNCED: (NONE, SYNCED),
    },
    Call.MUTABLE_GPU_DATA: {
        U: (ZERO_DEVICE, GPU),
        CPU: (UP, GPU),
        GPU: (NONE, GPU),
        SYNCED: (NONE, GPU),
    },
    Call.SET_CPU_DATA: dict.fromkeys(Head, (NONE, CPU)),
    Call.SET_GPU_DATA: dict.fromkeys(Head, (NONE, GPU)),
    Call.ASYNC_GPU_PUSH: {U: None, CPU: (UP, SYNCED), GPU: None, SYNCED: None},
    Call.OVERWRITE_CPU_DATA: dict.fromkeys(Head, (NONE, CPU)),
    Call.OVERWRITE_GPU_DATA: dict.fromkeys(Head, (NONE, GPU)),
    Call.SET_BOTH: dict.fromkeys(Head, (NONE, SYNCED)),
}


@pytest.mark.parametrize(
    ("call", "head"), list(itertools.product(Call, Head)), ids=lambda member: member.name
)
def test_each_cell_is_the_tables(call: Call, head: Head) -> None:
    cell = CELLS[call][head]
    expected = None if cell is None else Transition(*cell)
    assert expected == transition(call, head)


def test_the_numbers_of_the_heads_are_caffes() -> None:
    assert {"UNINITIALIZED": 0, "HEAD_AT_CPU": 1, "HEAD_AT_GPU": 2, "SYNCED": 3} == {
        head.name: head.value for head in Head
    }


@pytest.mark.parametrize("call", Call)
def test_no_call_leads_back_to_uninitialized(call: Call) -> None:
    steps = [transition(call, head) for head in Head]
    assert Head.UNINITIALIZED not in {step.head for step in steps if step is not None}


@pytest.mark.parametrize("head", Head)
def test_a_const_read_never_makes_a_copy_of_the_newest_bytes_invalid(head: Head) -> None:
    newest = {CPU: {"cpu"}, GPU: {"gpu"}, SYNCED: {"cpu", "gpu"}, U: set[str]()}
    for call in (Call.CPU_DATA, Call.GPU_DATA):
        step = transition(call, head)
        assert step is not None
        assert newest[head] <= newest[step.head]


@pytest.mark.parametrize("call", [Call.OVERWRITE_CPU_DATA, Call.OVERWRITE_GPU_DATA])
def test_overwriting_moves_no_bytes(call: Call) -> None:
    assert [Work.NONE] * 4 == [step.work for head in Head if (step := transition(call, head))]
