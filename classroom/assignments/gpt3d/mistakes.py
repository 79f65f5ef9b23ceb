"""What students get wrong in gpt3d."""

from classroom.engine.assignment import Mistake

RIGHT = "clip", "steps", "memory", "wire"  # all of them compare gradients or weights
AHEAD = "ahead = 1 - self.stage"
TIED = """\
        self.all_reduce(tied.weight.grad, "pipeline")  # holds the sum of both uses
"""
DATA = (
    '            self.all_reduce(weight.grad, "data")  # holds the sum of both replicas'
)
SQUARES = "weight.grad.square().sum() / (2 if whole else 1)"
F = "                    pair.register_forward_pre_hook(self.before)\n"
MISTAKES = [
    Mistake(
        "the loss of its own replica",
        "loss",
        [
            (
                'self.all_reduce(torch.stack(self.losses).mean(), "data") / 2',
                "torch.stack(self.losses).mean()",
            )
        ],
        also=("steps",),
    ),
    Mistake(
        "no sum behind the pair",
        "loss",
        [("                    pair.register_forward_hook(self.behind)\n", "")],
        "fail: rank 0, step 0, block 0: of its 4 rows, 4 have not come",
        also=("gradients", "flight", *RIGHT),
    ),
    Mistake(
        "a sum of replicas, no mean",
        "gradients",
        [("(out / self.micro / 2).", "(out / self.micro).")],
        also=RIGHT,
    ),
    Mistake(
        "the tied weight's uses are not added",
        "gradients",
        [(TIED, "")],
        also=RIGHT,
    ),
    Mistake(
        "no sum on the way back",
        "gradients",
        [(F, "")],
        also=RIGHT,
    ),
    Mistake(
        "the last stage has one block more",
        "gradients",
        [("first = (len(net.blocks) + 1) // 2", "first = len(net.blocks) // 2")],
        "fail: rank 0 expected to hold blocks.1.attention.key.weight",
        also=("wire",),
    ),
    Mistake(
        "the norm of one half",
        "clip",
        [('        self.all_reduce(squares, "tensor")\n', "")],
        "fail: norm: rank 0",
    ),
    Mistake(
        "what both halves hold counts twice",
        "clip",
        [(SQUARES, "weight.grad.square().sum()")],
        "fail: norm: rank 0",
    ),
    Mistake(
        "the tied weight counts twice",
        "clip",
        [('if name == "head.weight":', "if not name:")],
        "fail: norm: rank 0",
    ),
    Mistake(
        "losses of the step before",
        "steps",
        [("            self.losses.clear()\n", "")],
        "fail: loss of step 1",
    ),
    Mistake(
        "a view of the whole weight",
        "memory",
        [("nn.Parameter(mine.clone())", "nn.Parameter(mine)")],
        "fail: rank 0 keeps",
    ),
    Mistake(
        "the blocks of the other stage stay",
        "memory",
        [
            (
                "        self.net = net\n",
                "        self.net = net\n        self.all_blocks = every\n",
            ),
            (
                "        self.cut_blocks(net)\n",
                "        every = list(net.blocks)\n        self.cut_blocks(net)\n",
            ),
        ],
        "fail: rank 0 keeps",
    ),
    Mistake(
        "a copy of the gradients stays",
        "memory",
        [
            (
                TIED,
                f"{TIED}        weights = self.net.parameters()\n"
                "        self.last = [weight.grad.clone() for weight in weights]\n",
            )
        ],
        "fail: rank 0 keeps",
    ),
    Mistake(
        "all forwards first",
        "flight",
        [(AHEAD, "ahead = self.micro - 1")],
        "fail: rank 0 expected up to 2 micro-batches under way in block 0, got 4",
    ),
    Mistake(
        "one micro-batch at a time",
        "flight",
        [(AHEAD, "ahead = 0")],
        "fail: rank 0 expected up to 2 micro-batches under way in block 0, got 1",
    ),
    Mistake(
        "a sum for each micro-batch",
        "wire",
        [
            (
                DATA,
                "            for _ in range(self.micro - 1):\n"
                '                self.all_reduce(weight.grad.clone(), "data")\n' + DATA,
            )
        ],
    ),
    Mistake(
        "query, key and value each have a sum on the way back",
        "wire",
        [
            (
                F,
                "                    inputs = [pair]\n"
                "                    if pair is block.attention:\n"
                "                        inputs = pair.query, pair.key, pair.value\n"
                "                    for each in inputs:\n"
                "                        each.register_forward_pre_hook(self.before)\n",
            )
        ],
    ),
    Mistake(
        "both stages bring an activation to a sum",
        "wire",
        [
            (
                "            dist.recv(x, src=self.neighbor)"
                "  # holds what the first stage made of it\n",
                '            self.all_reduce(x.zero_(), "pipeline")\n',
            ),
            (
                "            self.send(out.detach())\n",
                '            self.all_reduce(out.detach().clone(), "pipeline")\n',
            ),
        ],
    ),
]
