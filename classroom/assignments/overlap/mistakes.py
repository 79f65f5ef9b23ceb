"""What students get wrong in Overlap."""

from classroom.engine.assignment import Mistake

HOOK = "        self.ready[parameter] = True\n"
SEND = "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))"
ORDER = "        dist.broadcast(order, src=0)  # every rank now holds rank 0's order\n"
MISTAKES = [
    Mistake(
        "a sum instead of the mean",
        "mean",
        [("mean = flat / dist.get_world_size()", "mean = flat")],
    ),
    Mistake(
        "as if there were two ranks",
        "mean",
        [("mean = flat / dist.get_world_size()", "mean = flat / 2")],
    ),
    Mistake(
        "a message for each parameter",
        "buckets",
        [("if not buckets or size > room:", "if True:")],
    ),
    Mistake(
        "a bucket is full when it is more than full",
        "buckets",
        [("if not buckets or size > room:", "if not buckets or room <= 0:")],
    ),
    Mistake(
        "counts numbers instead of bytes",
        "buckets",
        [("parameter.numel() * parameter.element_size()", "parameter.numel()")],
    ),
    Mistake(
        "sends everything in wait()",
        "hidden",
        [(HOOK, f"{HOOK}        return\n")],
        also=("order", "accumulate"),
    ),
    Mistake(
        "waits in the hook",
        "hidden",
        [(SEND, f"{SEND}\n        self.sent[-1][1].wait()")],
        "fail: rank 0 did not come through backward() before rank 1",
    ),
    Mistake(
        "waits for one bucket before it sends the next",
        "hidden",
        [(SEND, f"if self.sent:\n            self.sent[-1][1].wait()\n        {SEND}")],
        "fail: rank 0 did not come through backward() before rank 1",
    ),
    Mistake(
        "sends when half of the gradients are there",
        "hidden",
        [
            (
                "            if not all(p in self.ready for p in bucket):\n",
                "            late = len(self.ready) <= len(self.parameters) // 2\n"
                "            if late or not all(p in self.ready for p in bucket):\n",
            )
        ],
    ),
    Mistake(
        "keeps the order of parameters()",
        "order",
        [("if not self.agreed:", "if False:")],
    ),
    Mistake(
        "each rank keeps the order that it has seen",
        "order",
        [(ORDER, "")],
    ),
    Mistake(
        "a nap in place of waiting",
        "waits",
        [
            (
                "work.wait()  # only now flat holds the sum over the ranks",
                "time.sleep(0.2)",
            ),
            ("import json\n", "import json\nimport time\n"),
        ],
    ),
    Mistake(
        "looks once whether the last bucket is there",
        "waits",
        [
            (
                "            work.wait()  # only now",
                "            for _ in range(20):\n"
                "                if not work.is_completed():\n"
                "                    time.sleep(0.01)\n            # only now",
            ),
            ("import json\n", "import json\nimport time\n"),
        ],
    ),
    Mistake(
        "what backward() has left out is not sent",
        "odd",
        [
            (
                "for bucket in self.buckets[len(self.sent) :]:  # back",
                "for bucket in []:  # back",
            ),
            (
                "zip(self.buckets, self.sent, strict=True)",
                "zip(self.buckets, self.sent)",
            ),
        ],
    ),
    Mistake(
        "the new order forgets who was not there",
        "odd",
        [("torch.tensor(came + rest,", "torch.tensor(came,")],
    ),
    Mistake(
        "sends in every micro-batch",
        "accumulate",
        [("        self.syncing = False\n        try:", "        try:")],
    ),
    Mistake(
        "takes what no_sync() has gathered for complete",
        "accumulate",
        [
            (
                f"        if not self.syncing:\n            return\n{HOOK}",
                f"{HOOK}        if not self.syncing:\n            return\n",
            )
        ],
    ),
]
