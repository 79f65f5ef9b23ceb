"""Learn how far a ball flies, on any number of devices: throws.py, ported.

    torchrun --standalone --nproc-per-node 2 ddp_lab/script/exercise.py

It takes --epochs and --output, and --resume, which goes on from the checkpoint. It
trains as throws.py does, but in steps of 96 samples only. Once an epoch it prints, on
one rank, `epoch 0: loss 0.123, error 0.456`: the loss of the last global batch, and the
mean error of all test samples. After each epoch one rank writes
`checkpoint.pt`, with the bare network's weights in it.

Written by notebooks/04_your_script.ipynb.
"""
