"""Hints for ddp_lab/old_pages/exercise_sentences.py, and an answer.

1. What does DDP make equal on all ranks, and what does each rank keep for itself? Ask
   that of every sentence.
2. DDP averages gradients with one vote for each rank, and wraps the model, so that its
   names begin with module. DistributedSampler pads until all ranks have equally many
   samples.
3. Three of the eight hold. Equal weights and equal gradients make equal momentum;
   BatchNorm's running mean sees one rank's samples only; and a rank outside a group
   takes no part in its all_reduce.
"""


def verdicts():
    return {1: True, 2: False, 3: False, 4: True, 5: False, 6: False, 7: False, 8: True}
