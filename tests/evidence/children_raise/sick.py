
import multiprocessing, os, signal, sys, time


def work(rank, queue):
    odd = rank == 1
    print(f"[rank {rank}] is here", flush=True)
    time.sleep(0 if odd else 0.3)
    raise ValueError(rank)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    ranks = range(int(sys.argv[1]))
    children = [context.Process(target=work, args=(rank, queue)) for rank in ranks]
    for child in children:
        child.start()
    
    for child in children:
        child.join()  # and nobody reads its exit code
