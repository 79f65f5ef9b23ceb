"""Hints for ddp_lab/model/exercise.py, and an answer.

1. Which of the four kinds depend on the number of weights, and which on the samples?
   And how many weights has nn.Linear(inputs, outputs)?
2. With Adam in float32, a weight costs 16 bytes. A Linear has inputs * outputs weights
   and one bias for each output.
3. Add 4 bytes for each number of the tensor that the ReLU passes on: it has samples
   rows, and inputs columns.
"""


def layer_bytes(samples, inputs, outputs):
    weights = (inputs + 1) * outputs  # with one bias for each output
    return 16 * weights + 4 * samples * inputs
