"""Hints for ddp_lab/overview/exercise_layout.py, and an answer.

1. memory() and seconds() judge any layout. How many layouts are there for a training,
   and can a program try them all?
2. Loop over tensor in 1, 2, 4, 8 and over every pipeline that divides the layers; data
   is the number of devices divided by both. Leave out what does not divide evenly or
   needs more than 80 * GB.
3. Of the layouts that are left, return the one with the fewest seconds. Both functions
   take the layout first, then parameters, layers, width and tokens.
"""


def layout(parameters, layers, width, tokens, machines):
    devices, best = 8 * machines, None
    # Try all that fit: tensor in a machine, pipeline where it divides the layers.
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, layers + 1):
            if layers % pipeline or devices % (tensor * pipeline):
                continue
            split = [devices // tensor // pipeline, tensor, pipeline]
            if memory(split, parameters, layers, width, tokens) > 80 * GB:
                continue
            took = seconds(split, parameters, layers, width, tokens)
            if best is None or took < best[0]:
                best = took, split
    return best[1]
