"""Print the table of TROUBLESHOOTING.md: python -m tools.troubleshooting

What a symptom means is the launcher's knowledge; how it looks to a reader, and which
lesson shows it, is told here.
"""

from dataclasses import dataclass

from whichrank import Symptom


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    looks: str
    means: str
    lesson: str
    """The notebook's file name without its suffix."""


LOOKS = {
    Symptom.ABSENT: (
        "nothing more is printed, some ranks wait in a collective, or `Timed out "
        "waiting 1800000ms for recv operation to complete`, or from NCCL `Watchdog "
        "caught collective operation timeout` †",
        "08_when_it_hangs",
    ),
    Symptom.DIFFERENT_CALLS: (
        "a hang, a wrong result or an abort in gloo's `pair.cc`",
        "08_when_it_hangs",
    ),
    Symptom.DIFFERENT_TENSORS: (
        "an abort with `op.preamble.length <= op.nbytes`, or silently wrong numbers",
        "08_when_it_hangs",
    ),
    Symptom.CYCLE: ("every rank waits in `send` or `recv`", "01_point_to_point"),
    Symptom.BUSY: (
        "nothing more is printed, and no rank is seen to wait for another",
        "08_when_it_hangs",
    ),
    Symptom.VICTIM: (
        "`Connection closed by peer` or `Connection reset by peer`",
        "00_start_here",
    ),
    Symptom.LATE_CALL: ("`RPC ran for more than set timeout`", "A1_remote_calls"),
    Symptom.KILLED: (
        "a rank ends by SIGKILL, without a word, or torchrun says `exitcode: -9`",
        "06_checkpointing",
    ),
    Symptom.CRASH: ("a rank ends by SIGSEGV, SIGABRT or SIGBUS", "08_when_it_hangs"),
    Symptom.NO_LAUNCHER: (
        "`environment variable RANK expected, but not set`",
        "00_start_here",
    ),
    Symptom.LOCAL_RANK_OPTION: (
        "`unrecognized arguments: --local-rank=0` or `required: --local_rank`",
        "22_many_machines",
    ),
    Symptom.PORT_TAKEN: (
        "`EADDRINUSE` or `address already in use`",
        "22_many_machines",
    ),
    Symptom.STATIC_GRAPH: (
        "`Expected to have finished reduction in the prior iteration`, and further on "
        "`not compatible with static_graph set to True`",
        "11_inside_ddp",
    ),
    Symptom.UNUSED_PARAMETERS: (
        "`Expected to have finished reduction in the prior iteration`",
        "09_the_ward",
    ),
    Symptom.READY_TWICE: (
        "`Expected to mark a variable ready only once`, `has been marked as ready "
        "twice`",
        "16_fully_shard",
    ),
    Symptom.GROUPS: (
        "ranks wait in `new_group`, or in a call of the next group",
        "09_the_ward",
    ),
    Symptom.RENDEZVOUS: (
        "every rank waits in `init_process_group`, or `RendezvousConnectionError`",
        "09_the_ward",
    ),
    Symptom.NETWORK: (
        "ranks on several nodes wait, or `connectFullMesh failed`, or `Unable to find "
        "address for`",
        "12_what_communication_costs",
    ),
    Symptom.WORLD_IN_A_WORLD: (
        "more processes than ranks, each complaining or waiting",
        "22_many_machines",
    ),
    Symptom.PLAIN_TENSOR: (
        "`got mixed torch.Tensor and DTensor`",
        "16_fully_shard",
    ),
    Symptom.TWO_MESHES: (
        "`on inputs with different meshes` or `must have the same mesh`",
        "18_meshes",
    ),
    Symptom.NOT_IMPORTABLE: ("`Can't pickle local object`", "22_many_machines"),
    Symptom.CUDA_MEMORY: ("`CUDA out of memory`", "14_model_parallel"),
    Symptom.MEMORY: (
        "`DefaultCPUAllocator: can't allocate memory`",
        "14_model_parallel",
    ),
    Symptom.NO_GPU: (
        "`no NVIDIA driver`, `not compiled with CUDA` or `invalid device ordinal`",
        "00_start_here",
    ),
    Symptom.NCCL_WITHOUT_GPU: (
        "`requires at least one CUDA device`, `only supported with GPUs` or "
        "`doesn't have NCCL built in`",
        "00_start_here",
    ),
    Symptom.BUSY_GPU: (
        "`CUDA-capable device(s) is/are busy or unavailable`",
        "00_start_here",
    ),
    Symptom.SHARED_GPU: ("`Duplicate GPU detected`", "00_start_here"),
    Symptom.NO_KEYBOARD: (
        "`bdb.BdbQuit` or `EOFError: EOF when reading a line`",
        "08_when_it_hangs",
    ),
    Symptom.OPEN_FILES: (
        "`Too many open files`, `Failed to init uv loop`, or a rendezvous that does "
        "not come where `ulimit -n` is low",
        "08_when_it_hangs",
    ),
    Symptom.DISK_FULL: ("`No space left on device`", "06_checkpointing"),
    Symptom.READ_ONLY: (
        "`Read-only file system` or `Permission denied`",
        "06_checkpointing",
    ),
    Symptom.FOLDER: (
        "`Parent directory ... does not exist` or `FileExistsError`",
        "06_checkpointing",
    ),
    Symptom.DAMAGED_FILE: (
        "`failed finding central directory`, `unexpected EOF` or `Ran out of input`; "
        "from `torch.load` also `[Errno 22] Invalid argument`, or `Weights only load "
        "failed` without a word of a class that is not allowed",
        "06_checkpointing",
    ),
    Symptom.ANOTHER_CHECKPOINT: (
        "`Error(s) in loading state_dict`, with `module.` or `_orig_mod.` in the keys",
        "06_checkpointing",
    ),
}
HANG_AT_THE_END = Row(
    "with torch 2.11 to 2.13, a rank hangs at the very end of `main()`, after all its "
    "work",
    "DDP outlives its gloo group: free it (`del model`) before "
    "`destroy_process_group()`",
    "03_ddp_basics",
)
SUMMARY = Row(
    "`ChildFailedError`, `exitcode : 1`, `error_file: <N/A>`",
    "torchrun's summary, and not the cause: read the first traceback of the rank under "
    "`Root Cause`, further up; with `@record` over `main` it stands there",
    "00_start_here",
)
NOT_DESTROYED = Row(
    "`process group has NOT been destroyed` †, `destroy_process_group() was not "
    "called` †, or `terminate called without an active exception` †",
    "the program ended with its group alive: call `dist.destroy_process_group()` at "
    "the end; after an error it is a consequence, so read what came before",
    "00_start_here",
)
ONE_THREAD = Row(
    "`Setting OMP_NUM_THREADS environment variable for each process to be 1`",
    "no error: torchrun gives each rank one thread; if ranks compute on the CPU, set "
    "it to cores / ranks",
    "22_many_machines",
)
ONE_DECIDES = Row(
    "a hang after early stopping, or after one rank skipped a batch",
    "one rank decided alone: `all_reduce` the decision, so that all ranks stop, or "
    "skip, in the same step",
    "05_ddp_in_practice",
)
ALL_ON_ONE_GPU = Row(
    "`nvidia-smi` shows every process on GPU 0, or only GPU 0 runs out of memory †",
    '`"cuda"` is GPU 0 in every process: `torch.cuda.set_device(local_rank)` before '
    "anything else uses a GPU, and `torch.load(path, map_location=device)`",
    "04_your_script",
)
ROWS = [
    Row(looks, symptom.means, lesson) for symptom, (looks, lesson) in LOOKS.items()
] + [HANG_AT_THE_END, ONE_DECIDES, ALL_ON_ONE_GPU, SUMMARY, NOT_DESTROYED, ONE_THREAD]


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| You see | It means | Lesson |", "|---|---|---|"]
    for row in ROWS:
        link = f"[{row.lesson[:2].removeprefix('0')}](notebooks/{row.lesson}.ipynb)"
        lines.append(f"| {row.looks} | {row.means} | {link} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
