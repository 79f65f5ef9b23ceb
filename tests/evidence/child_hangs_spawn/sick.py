
import multiprocessing, os, signal, sys, time


def work(rank, queue):
    odd = rank == 1
    print(f"[rank {rank}] is here", flush=True)
    while odd: time.sleep(0.1)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = range(int(sys.argv[1]))
    children = [context.Process(target=work, args=(rank, queue)) for rank in ranks]
    for child in children:
        child.start()
    
    for child in children:
        child.join()  # and nobody reads its exit code
