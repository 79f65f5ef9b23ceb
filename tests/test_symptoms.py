"""The table of symptoms: each message finds its row, and the README shows them."""

import pytest

from ddp_lab import ROOT
from ddp_lab.kit.explain import symptoms

# Messages as PyTorch, gloo, NCCL and the system write them.
MESSAGES = {
    "absent": "Timed out waiting 4000ms for recv operation to complete",
    "different calls": "Detected mismatch between collectives on ranks. Rank 0 is",
    "different tensors": "[enforce fail at pair.cc] op.preamble.length <= op.nbytes",
    "victim": "pair.cc:561] Connection closed by peer [127.0.0.1]:18325",
    "killed": "process 1 terminated with signal SIGKILL",
    "crash": "ended by SIGSEGV (a crash in native code)",
    "no launcher": "environment variable RANK expected, but not set",
    "port taken": "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE",
    "unused parameters": "Expected to have finished reduction in the prior iteration",
    "CUDA memory": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "memory": "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9",
    "no GPU": "AssertionError: Torch not compiled with CUDA enabled",
    "busy GPU": "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "shared GPU": "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both",
    "disk full": "OSError: [Errno 28] No space left on device: 'a.pt'",
    "read-only": "OSError: [Errno 30] Read-only file system: 'a.pt'",
    "damaged file": "PytorchStreamReader failed reading zip archive",
    "another checkpoint": "Error(s) in loading state_dict for Linear:",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_finds_its_row(name):
    assert symptoms.find(f"RuntimeError: {MESSAGES[name]}").name == name


def test_every_pattern_has_a_message():
    assert set(MESSAGES) == {s.name for s in symptoms.SYMPTOMS if s.pattern}


def test_what_is_unknown_finds_no_row():
    assert symptoms.find("ValueError: no such sample") is None


def test_every_lesson_is_there():
    for symptom in symptoms.SYMPTOMS:
        assert (ROOT / "notebooks" / f"{symptom.lesson}.ipynb").exists(), symptom.name


def test_the_readme_shows_the_table():
    assert symptoms.table() in (ROOT / "README.md").read_text()
