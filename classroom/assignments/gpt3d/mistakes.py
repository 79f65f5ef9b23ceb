"""What students get wrong in gpt3d."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ loss, steps: the loss of its own replica
-            mean = self.all_reduce(torch.stack(self.losses).mean(), "data") / 2
+            mean = torch.stack(self.losses).mean()

@@ loss, gradients, clip, steps, wire: no sum behind the pair
-                    pair.register_forward_hook(self.behind)

@@ loss, gradients, clip, steps, held, wire: each text as long as the context
-            positions = torch.arange(x.size(1))
-            out = self.net.tokens(x) + self.net.positions(positions)
+            out = self.net.tokens(x) + self.net.positions.weight

@@ gradients, clip, steps: a sum of replicas, no mean
-            (out / self.micro / 2).backward()  # 2 replicas
+            (out / self.micro).backward()  # 2 replicas

@@ gradients, clip, steps: the tied weight's uses are not added
-        self.all_reduce(tied.weight.grad, "pipeline")  # holds the sum of both uses

@@ gradients, clip, steps, wire: no sum on the way back
-                    pair.register_forward_pre_hook(self.before)

@@ gradients, clip, steps, held, wire: the last stage has one block more
> fail: rank 0 expected to hold blocks.
-        first = (len(net.blocks) + 1) // 2
+        first = len(net.blocks) // 2

@@ clip: the norm of one half
> fail: norm of step 0: rank 0
-        self.all_reduce(squares, "tensor")

@@ clip: what both halves hold counts twice
> fail: norm of step 0: rank 0
-            squares += weight.grad.square().sum() / (2 if whole else 1)
+            squares += weight.grad.square().sum()

@@ clip: the tied weight counts twice
> fail: norm of step 0: rank 0
-            if name == "head.weight":
+            if not name:

@@ steps: losses of the step before
> fail: loss of step 1
-            self.losses.clear()

@@ held: a view of the whole weight
> fail: rank 0 holds
-                module.weight = nn.Parameter(mine.clone())  # else all of it stays
+                module.weight = nn.Parameter(mine)  # else all of it stays

@@ held: all forwards first
> fail: rank 0 keeps 4 micro-batches for their backward, expected 2
-        ahead = 1 - self.stage  # what the last stage can work on
+        ahead = self.micro

@@ held: one micro-batch at a time
> fail: rank 0 keeps 1 micro-batches for their backward, expected 2
-        ahead = 1 - self.stage  # what the last stage can work on
+        ahead = 0

@@ held: a copy of the gradients stays
> fail: rank 0 holds
         for weight in self.net.parameters():
             self.all_reduce(weight.grad, "data")  # holds the sum of both replicas
+        self.last = [weight.grad.clone() for weight in self.net.parameters()]

@@ held: what it has sent stays
> fail: rank 0 holds
         self.works.append((dist.isend(tensor, dst=self.neighbor), tensor))
+        self.sent = [*getattr(self, "sent", []), tensor]

@@ wire: a sum for each micro-batch
> fail: expected
         for weight in self.net.parameters():
+            for _ in range(self.micro - 1):
+                self.all_reduce(weight.grad.clone(), "data")
             self.all_reduce(weight.grad, "data")  # holds the sum of both replicas

@@ wire: query, key and value each have a sum on the way back
> fail: expected
-                    pair.register_forward_pre_hook(self.before)
+                    inputs = [pair]
+                    if pair is block.attention:
+                        inputs = pair.query, pair.key, pair.value
+                    for each in inputs:
+                        each.register_forward_pre_hook(self.before)

@@ wire: both stages bring an activation to a sum
> fail: expected
-            dist.recv(x, src=self.neighbor)  # holds what the first stage made of it
+            self.all_reduce(x.zero_(), "pipeline")

-            self.send(out.detach())
+            self.all_reduce(out.detach().clone(), "pipeline")
"""
)
