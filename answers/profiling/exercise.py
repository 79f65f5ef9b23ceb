"""Hints for ddp_lab/profiling/exercise.py, and an answer.

1. Which samples would this worker read from the beginning, and how many of them have
   been trained on?
2. Of `done` batches worker w has given those numbered w, w + workers, w + 2 * workers:
   len(range(w, done, workers)) of them.
3. mine = range(rank * workers + w, size, world_size * workers); return it from its
   sample number batch * len(range(w, done, workers)) on.
"""


def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    mine = range(rank * workers + number, size, world_size * workers)
    given = len(range(number, done, workers))  # batches of this worker, in turn
    return mine[given * batch :]
