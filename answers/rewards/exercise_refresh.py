"""Hints for ddp_lab/rewards/exercise_refresh.py, and an answer.

1. A trainer has a few rows of every weight, and may send one message. What must a
   generator know, so that it can put these numbers where they belong?
2. For each trainer in turn: torch.cat of its flattened rows, one broadcast in its
   group, and on a generator row.split(...) by the numbers of each weight.
3. weight.data.chunk(len(trainers)) are views of a generator's own weight, one for each
   trainer; where there are too few of them, the last trainers have no rows. Copy each
   part of the message into its view.
"""


def refresh(shards, policy, trainers, groups):
    for place, (trainer, group) in enumerate(zip(trainers, groups, strict=True)):
        if dist.get_rank() == trainer:
            row = torch.cat([rows.flatten() for rows in shards])
        elif policy is not None:
            pieces = [w.data.chunk(len(trainers)) for w in policy.parameters()]
            mine = [each[place] for each in pieces if place < len(each)]
            whole = next(policy.parameters()).data
            row = whole.new_empty(sum(rows.numel() for rows in mine))
        else:
            continue  # another trainer's message
        # Every generator now holds this trainer's rows.
        dist.broadcast(row, src=trainer, group=group)
        if policy is not None:
            parts = row.split([rows.numel() for rows in mine])
            for rows, part in zip(mine, parts, strict=True):
                rows.copy_(part.view_as(rows))
