
import signal
from concurrent.futures import ProcessPoolExecutor, process

if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        try:
            pool.submit(signal.raise_signal, 40).result()
        except process.BrokenProcessPool:
            pass
