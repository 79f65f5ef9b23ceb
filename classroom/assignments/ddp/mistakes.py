"""What students get wrong in DDP from scratch."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ start: buffers keep their own values
-        for tensor in [*module.parameters(), *module.buffers()]:
+        for tensor in module.parameters():

@@ steps: a sum instead of the mean
-            mean = flat / dist.get_world_size()
+            mean = flat

@@ buckets, overlap: counts numbers instead of bytes
-        size = parameter.numel() * parameter.element_size()
+        size = parameter.numel()

@@ overlap, no_sync: sends everything in finish()
-        if not self.syncing:
+        if True:

@@ overlap: waits in the hook
-        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
+        work = dist.all_reduce(flat, async_op=True)
+        work.wait()
+        self.sent.append((flat, work))

@@ no_sync: a raise leaves the switch off
-        try:
-            yield
-        finally:
-            self.syncing = True
+        yield
+        self.syncing = True

@@ frozen_tied: a tied weight is counted twice
-        parameters = [p for p in module.parameters() if p.requires_grad]
+        parameters = [
+            p
+            for layer in module.modules()
+            for p in layer.parameters(recurse=False)
+            if p.requires_grad
+        ]

@@ frozen_tied: frozen parameters are sent as zeros
-        parameters = [p for p in module.parameters() if p.requires_grad]
+        parameters = list(module.parameters())

         for parameter in parameters:
+            if not parameter.requires_grad:
+                continue

@@ frozen_tied: frozen parameters are not shared
-        for tensor in [*module.parameters(), *module.buffers()]:
+        trained = [p for p in module.parameters() if p.requires_grad]
+        for tensor in [*trained, *module.buffers()]:

@@ unused: what backward() has left out is not sent
-        for bucket in self.buckets[len(self.sent) :]:  # backward() has left these out
+        for bucket in []:  # backward() has left these out
             self.send(bucket)
-        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
+        for bucket, (flat, work) in zip(self.buckets, self.sent):

@@ unused: zeros in the place of what no_sync() has gathered
-        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
+        gradients = [p.grad if p in self.ready else torch.zeros_like(p) for p in bucket]
"""
)
