"""What students get wrong in Launcher."""

from classroom.engine.assignment import mistakes

MISTAKES = mistakes(
    """
@@ variables: local rank forgotten
> fail: rank 0 expected LOCAL_RANK 0, got nothing
-    numbers = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
+    numbers = {"RANK": rank, "MASTER_PORT": port}

@@ variables: nothing but the variables
> fail: rank 0 has lost the variables
-    return os.environ | words | {"MASTER_ADDR": "127.0.0.1"}
+    return words | {"MASTER_ADDR": "127.0.0.1"}

@@ variables: tells itself as well
> fail: launch() leaves RANK in the launcher's own environment
-    return os.environ | words | {"MASTER_ADDR": "127.0.0.1"}
+    os.environ.update(words, MASTER_ADDR="127.0.0.1")
+    return os.environ

@@ waits: back when the first is done
> fail: rank 1 was not allowed to finish its work
-        if codes == [0] * count:
+        if 0 in codes:
+            end(ranks, signal.SIGKILL, 0)

@@ fails, code, deaf, asked, early: starts them, and waits for all
> fail: launch() does not return
         ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+    for rank in ranks:
+        rank.wait()
+    return 0

@@ fails, code, deaf: looks at rank 0 alone
> fail: launch() does not return
-        if failed := [code for code in codes if code]:
+        if failed := [code for code in codes[:1] if code]:

@@ fails, deaf: the others are left
> fail: launch() has returned, and rank 0 still runs
-            end(ranks, signal.SIGTERM, grace)
+            print(ranks, signal.SIGTERM, grace)

@@ code: a signal is minus its number
> fail: launch() expected to return 137, returned -9
-            return failed[0] if failed[0] > 0 else 128 - failed[0]
+            return failed[0]

@@ code: the code of whom we have ended
> fail: launch() expected to return 3, returned 5
             end(ranks, signal.SIGTERM, grace)
+            failed = [rank.returncode for rank in ranks]

@@ deaf: asks only
> fail: launch() does not return
-            rank.kill()

@@ deaf: no time to save
> fail: rank 1 needed 0.7 s of the 3.0 s of grace
-            end(ranks, signal.SIGTERM, grace)
+            end(ranks, signal.SIGTERM, 0.4)

@@ deaf: waits until all the grace is over
> fail: launch() does not return
-            rank.wait(max(0, last - time.monotonic()))
+            time.sleep(max(0, last - time.monotonic()))
+            rank.wait(0)

@@ deaf: a grace for each
> fail: rank
-            rank.wait(max(0, last - time.monotonic()))
+            rank.wait(grace)

@@ deaf: a grace of its own
> fail: rank 0 was killed 5 s after the first rank was asked to end: they share 1.0 s
     caught, ranks, port = [], [], free_port()
+    grace = 5.0

@@ deaf: zombies
> fail: launch() has returned, and rank 0 is a zombie
-            rank.kill()
-            rank.wait()
+            rank.kill()

@@ asked, deaf: keeps the signal to itself
> fail: rank 0 expected SIGTERM, and did not get it
-    end(ranks, caught[0], grace)
+    end(ranks, signal.SIGKILL, grace)

@@ asked: Ctrl-C is forgotten
> fail: launch() raises KeyboardInterrupt
-    for number in signal.SIGTERM, signal.SIGINT:
+    for number in [signal.SIGTERM]:

@@ asked: a flag that is never lowered
> fail: launch() is called again
 from torch.distributed.elastic.multiprocessing.errors import record
-
+
+caught = []
+

-    caught, ranks, port = [], [], free_port()
+    ranks, port = [], free_port()

@@ code: 143 for every signal
> fail: launch() expected to return 130, returned 143
-    return 128 + caught[0]
+    return 143

@@ early: handlers when all ranks are there
> fail: launch() has ended its process: SIGTERM
-    for number in signal.SIGTERM, signal.SIGINT:
-        signal.signal(number, lambda number, _: caught.append(number))
-    for rank in range(count):
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+    for rank in range(count):
+        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+    for number in signal.SIGTERM, signal.SIGINT:
+        signal.signal(number, lambda number, _: caught.append(number))

@@ early: the second signal is nobody's
> fail: launch() has ended its process: SIGTERM
-    end(ranks, caught[0], grace)
+    signal.signal(caught[0], signal.SIG_DFL)
+    end(ranks, caught[0], grace)

@@ fails, deaf, early, variables, waits, asked, together, output: starts nothing
> fail: 3 ranks expected, 0 were started
-    for rank in range(count):
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+    count = 0

@@ together, variables, waits, fails, code, deaf, asked, output: through a shell
> fail: 2 ranks expected, 0 were started
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        words = " ".join(command)
+        ranks.append(subprocess.Popen(words, shell=True, env=told(rank, count, port)))

@@ together: a port drawn
> fail: job 1: its rank 0 cannot open port
 import os
+import random

-    with socket.socket() as probe:
-        probe.bind(("127.0.0.1", 0))  # 0: any that is free
-        return probe.getsockname()[1]
+    return random.randint(20_000, 60_000)

@@ together: the port of old pages
> fail: job
-    with socket.socket() as probe:
-        probe.bind(("127.0.0.1", 0))  # 0: any that is free
-        return probe.getsockname()[1]
+    return 29500

@@ together: holds the port
> fail: job 1: its rank 0 cannot open port
 from torch.distributed.elastic.multiprocessing.errors import record
-
+
+kept = []
+

-    with socket.socket() as probe:
-        probe.bind(("127.0.0.1", 0))  # 0: any that is free
-        return probe.getsockname()[1]
+    probe = socket.create_server(("127.0.0.1", 0))
+    kept.append(probe)
+    return probe.getsockname()[1]

@@ output: errors among the output
> fail: rank 0: of its 1 lines on stderr 1 are lost
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        ranks.append(subprocess.Popen(command, env=told(rank, count, port), stderr=1))

@@ output: all that there is, again and again
> fail: rank
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        log = open(f"/tmp/{os.getpid()}.{rank}", "w+")
+        ranks.append(subprocess.Popen(command, env=told(rank, count, port), stdout=log))
+        ranks[-1].log = log

-        time.sleep(0.02)
+        time.sleep(0.02)
+        for rank in ranks:
+            os.write(1, os.pread(rank.log.fileno(), 10**6, 0))

@@ output: output into a pipe
> fail: rank 0: of its 3 lines on stdout 3 are lost
-        ranks.append(subprocess.Popen(command, env=told(rank, count, port)))
+        ranks.append(subprocess.Popen(command, env=told(rank, count, port), stdout=subprocess.PIPE))
"""
)
