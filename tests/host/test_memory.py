from __future__ import annotations

from pathlib import Path

from edgeq.host import memory
from tests.host import trees


def test_machine_memory(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    assert memory.total(root) == 24684844 * 1024
    assert memory.available(root) == 16000000 * 1024
    assert memory.limit(root) is None


def test_a_cgroup_v2_limit_counts_and_its_cache_is_free(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    group = "sys/fs/cgroup/job"
    trees.write(root, {"proc/self/cgroup": "0::/job\n", f"{group}/memory.max": "1000000000\n",
                       f"{group}/memory.current": "600000000\n",
                       f"{group}/memory.stat": "anon 1\ninactive_file 100000000\n",
                       f"{group}/memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n",
                       "proc/vmstat": "nr_free_pages 1\noom_kill 7\n"})  # fmt: skip
    assert memory.limit(root) == 1_000_000_000
    assert memory.available(root) == 500_000_000
    assert memory.oom_kills(root) == memory.OomKills(group=2, machine=7)


def test_a_cgroup_v1_limit_counts_at_any_level_and_its_maximum_is_no_limit(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    base = "sys/fs/cgroup/memory"
    trees.write(root, {"proc/self/cgroup": "3:memory:/a/b\n0::/\n",
                       f"{base}/a/b/memory.limit_in_bytes": str(2**63 - 4096),
                       f"{base}/a/memory.limit_in_bytes": "500000000", f"{base}/a/memory.usage_in_bytes": "100000000",
                       f"{base}/a/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"})  # fmt: skip
    assert memory.limit(root) == 500_000_000
    assert memory.available(root) == 400_000_000
    assert memory.oom_kills(root) == memory.OomKills(group=4, machine=None)


def test_nothing_there(tmp_path: Path) -> None:
    assert memory.total(tmp_path) is None
    assert memory.available(tmp_path) is None
    assert memory.peak_rss(tmp_path) is None
    assert memory.oom_kills(tmp_path) == memory.OomKills(None, None)


def test_peak_rss_is_of_the_process_asked_for(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/self/status": "Name:\tpython\nVmPeak:\t 999 kB\nVmHWM:\t     15212 kB\n",
                           "proc/42/status": "VmHWM:\t 8 kB\n"})  # fmt: skip
    assert memory.peak_rss(tmp_path) == 15212 * 1024
    assert memory.peak_rss(tmp_path, 42) == 8192
