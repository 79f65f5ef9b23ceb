"""What students get wrong in Ring."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ chunks: as long as can be, and the last ones empty
> fail: bounds(
-    return [length * i // parts for i in range(parts + 1)]
+    return [min(length, -(-length // parts) * i) for i in range(parts + 1)]

@@ right, any_dtype: a mean instead of the sum
> fail: rank 0 expected [
     all_gather(chunks)
+    x /= world_size

@@ any_length, chunks: rest dropped
-    return [length * i // parts for i in range(parts + 1)]
+    return [length // parts * i for i in range(parts + 1)]

@@ any_dtype: bfloat16 travels as float32
> fail: rank 0 sends 240,000 bytes, expected 120,000
     chunks = [x[b[i] : b[i + 1]] for i in range(world_size)]  # views: writing fills x
+    if x.dtype == torch.bfloat16:
+        chunks = [chunk.float() for chunk in chunks]
     reduce_scatter(chunks)
     all_gather(chunks)
+    x.copy_(torch.cat(chunks))

@@ any_dtype: added in float32
     chunks = [x[b[i] : b[i + 1]] for i in range(world_size)]  # views: writing fills x
+    chunks = [chunk.float() for chunk in chunks]
     reduce_scatter(chunks)
     all_gather(chunks)
+    x.copy_(torch.cat(chunks))

@@ in_place: new memory for the old tensor
> fail: all_reduce makes a new tensor
     chunks = [x[b[i] : b[i + 1]] for i in range(world_size)]  # views: writing fills x
+    chunks = [chunk.clone() for chunk in chunks]

     all_gather(chunks)
+    x.data = torch.cat(chunks)

@@ in_place: waits for what it receives alone
> fail: all_reduce returns before
-    for work in works:
-        work.wait()
+    works[1].wait()

@@ in_place, right, any_length, any_dtype, messages, bytes_sent, no_deadlock: waits for its sends
> fail: all_reduce returns before it has waited for all that it sends and receives
-    for work in works:
-        work.wait()
+    works[0].wait()

@@ in_place: one buffer to send from and to receive into
> fail: all_reduce writes to what it sends
-        send_buf = chunks[(rank + 1 - step) % world_size]
-        exchange(send_buf, chunks[(rank - step) % world_size])
+        buf = torch.empty_like(max(chunks, key=len))
+        mine, other = (chunks[(rank + 1 - step - i) % world_size] for i in range(2))
+        buf[: len(mine)] = mine
+        exchange(buf[: len(mine)], buf[: len(other)])
+        other.copy_(buf[: len(other)])

@@ messages, right, any_length, any_dtype, in_place, bytes_sent, no_deadlock: a collective
> fail: rank
-    reduce_scatter(chunks)
-    all_gather(chunks)
+    dist.all_reduce(x)

@@ bytes_sent, no_deadlock: whole vectors
-    reduce_scatter(chunks)
-    all_gather(chunks)
+    total, send_buf = x.clone(), x.clone()
+    for _ in range(world_size - 1):
+        recv_buf = torch.empty_like(x)
+        exchange(send_buf, recv_buf)
+        total += recv_buf
+        send_buf = recv_buf
+    x.copy_(total)

@@ no_deadlock: send first if it is much
     left, right = (rank - 1) % world_size, (rank + 1) % world_size
+    if send_buf.numel() > 500_000:
+        dist.send(send_buf, dst=right)
+        dist.recv(recv_buf, src=left)
+        return
"""
)
