"""What students get wrong in Split."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ cut: the last rank takes what is left over
-    return [rank * each + min(rank, more) for rank in range(world_size + 1)]
+    return [*range(0, world_size * each, each), each * world_size + more]

@@ outputs: only the last micro-batch
-        return torch.cat(outputs) if self.right is None else None
+        return outputs[-1] if self.right is None else None

@@ grads: a mean of means
-                self.backward(j, rows[j] / total, targets[j])
+                self.backward(j, 1 / m, targets[j])

@@ grads: the first rank is never the last
> fail: rank 0
-        xs = [None] * m if x is None else x.split(rows)
-        targets = [None] * m if target is None else target.split(rows)
+        xs = targets = [None] * m
+        if x is not None:
+            xs = x.split(rows)
+        elif target is not None:
+            targets = target.split(rows)

@@ grads, outputs: as if there were enough micro-batches
> fail: rank 0: IndexError
-            if i < m:
+            if i < max(m, ahead):

@@ steps: sets the gradients to zero by itself
         m, total, outputs = len(rows), sum(rows), []
+        self.stage.zero_grad()

@@ steps: waits for no message
> fail: rank 0 holds tensors of
-        for work, _ in self.works:
-            work.wait()
-        self.works.clear()

@@ memory, freed, bubble: all forwards first
> fail: rank 0 expected at most 2 micro-batches between F and B, got 4
-        ahead = self.world_size - 1 - self.rank  # what the stages behind can work on
+        ahead = m  # what the stages behind can work on

@@ memory, bubble: one micro-batch at a time
> fail: rank 0 waits for each micro-batch to come back
-        ahead = self.world_size - 1 - self.rank  # what the stages behind can work on
+        ahead = 0  # what the stages behind can work on

@@ memory, bubble: one micro-batch at a time, but on rank 0
> fail: rank 1 waits for each micro-batch to come back
-        ahead = self.world_size - 1 - self.rank  # what the stages behind can work on
+        ahead = int(self.rank == 0)  # what the stages behind can work on

@@ memory: one more under way than needed
-        ahead = self.world_size - 1 - self.rank  # what the stages behind can work on
+        ahead = self.world_size - self.rank  # what the stages behind can work on

@@ freed: what has come back is kept, and the stage gets a copy
> fail: rank 1 expected at most 1 micro-batches in memory
-        out = self.stage(x)  # (rows, width of the next stage)
+        out = self.stage(x.clone())  # (rows, width of the next stage)

-        x, out = self.kept.pop(i)
+        x, out = self.kept[i]

@@ freed: a buffer for all micro-batches
> fail: rank 1 expected at most 1 micro-batches in memory
-            recv_buf = torch.empty(rows, self.width)
+            if i == 0:
+                self.batch = torch.empty(1000, self.width)
+            recv_buf = self.batch[1000 - rows * (i + 1) :][:rows]

@@ bubble: no more than two under way
> fail: expected a bubble of 22% = (p - 1) / (m + p - 1), got
-        ahead = self.world_size - 1 - self.rank  # what the stages behind can work on
+        ahead = min(1, self.world_size - 1 - self.rank)
"""
)
