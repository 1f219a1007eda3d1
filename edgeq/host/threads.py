"""What a worker's environment says of threads, set before any framework is loaded and recorded with the cell."""

from __future__ import annotations

#: Turns that an OpenMP thread of libgomp (PyTorch's) spins at a barrier before it sleeps. Its default, hundreds of
#: thousands, lets a busy neighbour on one core stop both for a whole time slice at each of a network's barriers: seen,
#: MobileNetV2 on 2 threads beside other work, 1,100 ms with the default, 18 ms with 1,000.
SPIN_COUNT = 1000


def environment(threads: int) -> dict[str, str]:
    """Environment variables for a child process whose frameworks are to use ``threads`` threads."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": str(SPIN_COUNT),
    }
