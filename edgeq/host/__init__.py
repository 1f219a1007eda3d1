"""The device: CPU and instruction sets, memory, and its state before and after a measurement. Imports no framework."""

from __future__ import annotations

from edgeq.host.cpu import isa_flags, physical_cores, target
from edgeq.host.device import describe
from edgeq.host.state import snapshot, steal_share

__all__ = ["describe", "isa_flags", "physical_cores", "snapshot", "steal_share", "target"]
