"""What students get wrong in Resume."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ momentum, schedule, whole: the optimizer forgotten
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in "model", "scheduler":

@@ schedule, whole: schedule begins anew
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in "model", "optimizer":

@@ momentum, schedule, epoch, order, jitter, dropout, whole: the weights alone
> fail: last weights: rank 0
-    for name in "model", "optimizer", "scheduler":
+    for name in ["model"]:

-    run.done, run.sampler.position = shared["done"], shared["position"]
-    run.sampler.generator.set_state(shared["order"])
-    run.sampler.batches = shared["batches"]
-    run.noise.set_state(own["noise"])
-    torch.set_rng_state(own["dropout"])
+    run.done = shared["done"]

@@ epoch, whole: epoch begins anew
> fail: last weights: rank 0
-    run.done, run.sampler.position = shared["done"], shared["position"]
+    run.done = shared["done"]

@@ order, whole: next epoch is the first again
> fail: last weights: rank 0
-    run.sampler.generator.set_state(shared["order"])

@@ jitter, dropout, whole: the noise of rank 0 for all
> fail: last weights: rank 0
-        own = saved["owns"][dist.get_rank()]
+        own = saved["owns"][0]

@@ dropout, whole: dropout forgotten
> fail: last weights: rank 0
-    torch.set_rng_state(own["dropout"])

@@ kills, writing, cut, rotten: a checkpoint is used up by loading it
> fail: rank 0 expected to go on from step 10, got 6
         put_back(run, {"shared": saved["shared"], "own": own})
+        dist.barrier()
+        path.unlink(missing_ok=True)

@@ kills, whole: the newest by its name
> fail: rank 0 expected to go on from step
-        path = folder / f"step_{run.done:08}.pt"
+        path = folder / f"step_{run.done}.pt"

@@ kills, writing, whole, cut, rotten: the newest by its time
> fail: rank 0 expected to go on from step
-    for path in sorted(folder.glob("step_*.pt"), reverse=True):
+    for path in sorted(folder.glob("step_*.pt"), key=lambda p: -p.stat().st_mtime_ns):

@@ writing, whole: a leftover stands in the way
> fail: rank 0: FileExistsError
-        with open(path.with_suffix(".tmp"), "wb") as file:
+        with open(path.with_suffix(".tmp"), "xb") as file:

@@ cut, rotten: two files in turn, counted anew in each life
> fail: rank 0 expected to go on from step 6, got 4
-        path = folder / f"step_{run.done:08}.pt"
+        run.saved = getattr(run, "saved", 0) + 1
+        path = folder / f"{run.saved % 2}.pt"

-        for old in sorted(folder.glob("step_*.pt"))[:-2]:
-            old.unlink()

-    for path in sorted(folder.glob("step_*.pt"), reverse=True):
+    found = []
+    for path in folder.glob("*.pt"):

+        found.append((saved["shared"]["done"], path, saved))
+    for _, path, saved in sorted(found, key=lambda one: one[0])[-1:]:
         here, there = dist.get_world_size(), len(saved["owns"])

@@ writing: where half a file has the name, nothing is saved again
> fail: rank 0 expected to go on from step 6
-        with open(path.with_suffix(".tmp"), "wb") as file:
+        with open(path, "ab") as file:
+            if file.tell():
+                return dist.barrier()

-        os.replace(file.name, path)

@@ cut: the newest file has to be whole
> fail: rank
         except Exception:  # reading a damaged file can raise nearly anything
-            continue
+            raise

@@ rotten: what loads is taken for whole
> fail: last weights: rank 0 goes on with weights that the training without a stop never has
-            if ZipFile(path).testzip():  # reads it all, and names a piece that is wrong
-                continue

@@ cut, rotten: only the newest is kept
> fail: rank 0 expected to go on from step 6, got 0
-        for old in sorted(folder.glob("step_*.pt"))[:-2]:
+        for old in sorted(folder.glob("step_*.pt"))[:-1]:

@@ refuses: any number of ranks will do
> fail: rank
-        if here != there:
+        if here < 0:
"""
)
