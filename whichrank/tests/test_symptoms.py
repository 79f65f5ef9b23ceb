"""Symptoms: each message finds its own."""

import json
import re
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest

from whichrank.explain.symptoms import Symptom, in_words
from whichrank.record.torch_words import TABLE, TORCH

# Messages as PyTorch, gloo, NCCL and the system write them.
MESSAGES = {
    "absent": [
        "Timed out waiting 4000ms for recv operation to complete",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
        "NCCL operation failed: Operation timed out after 600000 ms",
        "Aborting process due to timeout",
        "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 2000 ms",
    ],
    "different calls": ["Detected mismatch between collectives on ranks. Rank 0 is"],
    "different tensors": [
        "[enforce fail at pair.cc] op.preamble.length <= op.nbytes",
        "all tensor shapes must be equal",
        "[enforce fail at alltoallv.cc:44] opts.inLengthPerRank[myRank] == opts.out",
        "tensor shape mismatch",
        "sizes do not match across ranks",
        "DDP expects same model across all ranks, but Rank 0 has 2 params, while rank",
    ],
    "victim": [
        "pair.cc:561] Connection closed by peer [127.0.0.1]:18325",
        "Read error [127.0.0.1]:18325: Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "NCCL WARN Socket closed",
        "eof (this error originated at tensorpipe/transport/shm/x.cc:259)",
    ],
    "late call": [
        "RPCErr:1:RPC ran for more than set timeout (2000 ms) and will now be marked "
        "with an error"
    ],
    "killed": ["process 1 terminated with signal SIGKILL"],
    "crash": [
        "ended by SIGSEGV (a crash in native code)",
        "ended by SIGABRT",
        "ended by SIGBUS",
        "ended by SIGFPE",
        "ended by SIGILL",
    ],
    "no launcher": ["environment variable RANK expected, but not set"],
    "local rank option": [
        "train.py: error: unrecognized arguments: --local-rank=0",
        "train.py: error: the following arguments are required: data, --local_rank",
    ],
    "network": ["device.cc:84] ifa != nullptr. Unable to find address for: eth7"],
    "port taken": [
        "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE",
        "OSError: [Errno 98] Address already in use",
    ],
    "static graph": [
        "Expected to have finished reduction in the prior iteration before starting a "
        "new one. ... this is not compatible with static_graph set to True."
    ],
    "ready twice": [
        "Expected to mark a variable ready only once. This error is caused by one of",
        "Parameter at index 7 with name blocks.2.bias has been marked as ready twice.",
    ],
    "rendezvous": [
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: no",
        "The connection to the C10d store has failed. See inner exception for details.",
    ],
    "plain tensor": ["aten.addmm.default got mixed torch.Tensor and DTensor, need to"],
    "two meshes": [
        "Cannot run aten.add.Tensor on inputs with different meshes: got DeviceMesh((1",
        "All operands in aten.stack.default must have the same mesh",
    ],
    "not importable": ["AttributeError: Can't pickle local object 'main.<locals>.f'"],
    "folder": [
        "Parent directory /scratch/run does not exist.",
        "FileExistsError: [Errno 17] File exists: 'run'",
    ],
    "unused parameters": ["Expected to have finished reduction in the prior iteration"],
    "CUDA memory": [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "CUDA error: out of memory",
    ],
    "memory": [
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9",
        "OSError: [Errno 12] Cannot allocate memory",
        "MemoryError",
    ],
    "no GPU": [
        "AssertionError: Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system",
        "CUDA error: invalid device ordinal",
        "No CUDA GPUs are available",
        "no CUDA-capable device is detected",
    ],
    "NCCL without GPUs": [
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "Distributed package doesn't have NCCL built in",
        "nccl2 requires at least one CUDA device",
    ],
    "busy GPU": ["CUDA error: CUDA-capable device(s) is/are busy or unavailable"],
    "shared GPU": ["ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both"],
    "no keyboard": ["bdb.BdbQuit", "EOFError: EOF when reading a line"],
    "too many open files": [
        "OSError: [Errno 24] Too many open files: '/tmp/stdout.log'",
        "too many open files",
        "accept: EMFILE",
        "torch.distributed.DistStoreError: Failed to init uv loop",
        "Errno 24",
    ],
    "disk full": [
        "OSError: [Errno 28] No space left on device: 'a.pt'",
        "OSError: [Errno 122] Disk quota exceeded",
        "Errno 28",
    ],
    "read-only": [
        "OSError: [Errno 30] Read-only file system: 'a.pt'",
        "PermissionError: [Errno 13] Permission denied: 'a.pt'",
    ],
    "damaged file": [
        "UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the",
        "PytorchStreamReader failed reading zip archive",
        "unexpected EOF, expected 4 more bytes",
        "EOFError: Ran out of input",
        "UnpicklingError: invalid load key, 'n'.",
        "UnpicklingError: unpickling stack underflow",
    ],
    "another checkpoint": ["Error(s) in loading state_dict for Linear:"],
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_finds_its_symptom(name):
    for message in MESSAGES[name]:
        assert in_words(f"RuntimeError: {message}") == name, message


def test_every_row_has_a_message():
    assert {*MESSAGES} == {row.symptom for row in TABLE if row.symptom}
    for row in TABLE:
        messages = MESSAGES.get(row.symptom, [])
        for part in re.split(r"\|(?![^(]*\))", row.pattern) * bool(row.symptom):
            assert any(re.search(part, message) for message in messages), part


@pytest.mark.full  # a minute: 900 MB are searched
def test_torch_still_says_so():
    """A release that words it otherwise needs a row of its own."""
    torch = pytest.importorskip("torch")
    missing = {row.pattern: _literal(row.pattern) for row in TABLE if row.of == TORCH}
    for path in Path(torch.__file__).parent.rglob("*"):
        if path.suffix in (".py", ".so") and path.stat().st_size:
            with open(path, "rb") as file:
                data = mmap(file.fileno(), 0, access=ACCESS_READ)
                for pattern, text in [*missing.items()]:
                    if data.find(text) >= 0:
                        del missing[pattern]
    assert not missing or not torch.backends.cuda.is_built()


def _literal(pattern: str) -> bytes:
    """Return the longest text in a pattern that is none of its own signs."""
    plain = re.split(r"\(.*?\)|\\[wdb]\+?|\.\*|\||\[.*?\]", pattern)
    return max((re.sub(r"\\(.)", r"\1", part) for part in plain), key=len).encode()


def test_what_is_unknown_is_no_symptom():
    assert in_words("ValueError: no such sample") is None


def test_a_symptom_is_the_string_that_a_learner_types():
    assert Symptom.DIFFERENT_CALLS == "different calls"
    assert Symptom("different calls") is Symptom.DIFFERENT_CALLS
    assert f"{Symptom.BUSY:6}|" == "busy  |"
    assert repr(Symptom.BUSY) == "'busy'"
    assert json.dumps([Symptom.BUSY]) == '["busy"]'
