"""What students get wrong in Resume."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ memory: momentum forgotten
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in "model", "scheduler":

@@ memory: schedule begins anew
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in "model", "optimizer":

@@ memory, order, noise: the weights alone
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in ["model"]:

-    run.done, run.sampler.position = shared["done"], shared["position"]
-    run.sampler.generator.set_state(shared["order"])
-    run.sampler.batches = shared["batches"]
-    run.noise.set_state(own["noise"])
-    torch.set_rng_state(own["dropout"])
+    run.done = shared["done"]

@@ order: epoch begins anew
> fail: last weights: rank 0
-    run.done, run.sampler.position = shared["done"], shared["position"]
+    run.done = shared["done"]

@@ order: next epoch is the first again
> fail: last weights: rank 0
-    run.sampler.generator.set_state(shared["order"])

@@ noise: the noise of rank 0 for all
> fail: last weights: rank 0
-        own = saved["owns"][dist.get_rank()]
+        own = saved["owns"][0]

@@ noise: jitter forgotten
> fail: last weights: rank 0
-    run.noise.set_state(own["noise"])

@@ dies: a checkpoint is used up by loading it
> fail: rank 0 expected to go on from step 4, got 0
         put_back(run, {"shared": saved["shared"], "own": own})
+        dist.barrier()
+        path.unlink(missing_ok=True)

@@ writing: a leftover stands in the way
> fail: rank 0: FileExistsError
-        with open(path.with_suffix(".tmp"), "wb") as file:
+        with open(path.with_suffix(".tmp"), "xb") as file:

@@ damaged: the newest file has to be whole
> fail: rank
         except Exception:  # reading a damaged file can raise nearly anything
-            continue
+            raise

@@ damaged: what loads is taken for whole
> fail: last weights: rank 0 goes on with weights that the training without a stop never has
-            if ZipFile(path).testzip():  # reads it all, and names a piece that is wrong
-                continue

@@ damaged: only the newest is kept
> fail: rank 0 expected to go on from step 4, got 0
-        for old in sorted(folder.glob("step_*.pt"))[:-2]:
+        for old in sorted(folder.glob("step_*.pt"))[:-1]:

@@ refuses: any number of ranks will do
> fail: rank
-        if here != there:
+        if here < 0:
"""
)
