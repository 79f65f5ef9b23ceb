"""Hints for ddp_lab/sharding/exercise_accumulate.py, and an answer.

1. Between two micro-batches the weights do not change. What then are all_gathers for,
   after the first one, and what must wait until the last gradient is there?
2. model.set_requires_gradient_sync, model.set_reshard_after_forward and
   model.set_reshard_after_backward, each with True or False. Which of them changes for
   the last micro-batch?
3. A micro-batch's loss is a mean over its own rows: multiply it by len(x) and divide by
   all rows before backward. For the last micro-batch, sync and reshard after backward.
"""


def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)  # what is gathered stays for backward
    for i, (x, y) in enumerate(micro_batches):
        is_last = i == len(micro_batches) - 1
        model.set_requires_gradient_sync(is_last)
        model.set_reshard_after_backward(is_last)  # and for the next micro-batch
        loss = loss_of(model(x), y) * len(x) / rows  # a row counts the same everywhere
        loss.backward()
        total += loss.item()
    return total
