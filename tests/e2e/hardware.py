"""Hardware that simulated nodes lack: tools that repeat what real ones printed, and an InfiniBand port in /sys."""

import hashlib
import io
import shlex
import tarfile
import tempfile

from repro.simulation.nodes import Nodes

TOOLS = "/opt/simulation/tools"
SYSFS = "/opt/simulation/sysfs"
GUID = "b859:9f03:00aa:00{number:02x}"
# Any program is called by its name; what it was called with picks the record.
TOOL = f"""#!/bin/sh
# Simulation: repeats what the real tool printed when it was called like this.
record="{TOOLS}/$(echo "$(basename "$0") $*" | md5sum | cut -c1-32)"
[ -e "$record" ] || {{ echo "$(basename "$0"): nothing is recorded for: $*" >&2; exit 1; }}
exec cat "$record"
"""


def lay_tools(nodes: Nodes, node: str, outputs: dict[str, str]) -> None:
    """Tools such as {"nvidia-smi topo -m": what it prints}; other calls of these programs end with status 1."""
    files = {f"usr/local/bin/{line.split()[0]}": TOOL for line in outputs}
    for line, text in outputs.items():
        program, *arguments = shlex.split(line)
        call = f"{program} {' '.join(arguments)}\n"
        files[f"{TOOLS[1:]}/{hashlib.md5(call.encode()).hexdigest()}"] = text
    _unpack(nodes, node, files)
    nodes.root(node, "sh", "-c", f"cat >> {TOOLS}/programs", input="".join(f"{line.split()[0]}\n" for line in outputs))


def lay_gpus(nodes: Nodes, node: str, name: str, capability: str, count: int = 2, driver: str = "535.183.06") -> None:
    """GPUs as far as the agent asks nvidia-smi of them: nothing that opens a device finds one."""
    query = "nvidia-smi --query-gpu={} --format=csv,noheader,nounits"
    outputs = {
        query.format("name,driver_version,uuid"): "".join(f"{name}, {driver}, GPU-{n}\n" for n in range(count)),
        query.format("compute_cap"): f"{capability}\n" * count,
    }
    lay_tools(nodes, node, outputs)


def remove_tools(nodes: Nodes, node: str) -> None:
    nodes.root(node, "sh", "-c", f"cd /usr/local/bin && rm -f $(cat {TOOLS}/programs); rm -rf {TOOLS}")


def lay_infiniband(
    nodes: Nodes,
    node: str,
    hca: str = "mlx5_0",
    rate: str = "100 Gb/sec (4X EDR)",
    state: str = "4: ACTIVE",
    link_layer: str = "InfiniBand",
) -> None:
    """One port of one adapter, as the kernel shows it in /sys/class/infiniband; `ibstat` and `ibstatus` read it there.

    The verbs device /dev/infiniband/uverbs0 is there, and nothing answers at it.
    """
    guid = GUID.format(number=int(node.removeprefix("node")))
    active = state.startswith("4")
    adapter, port = f"infiniband/{hca}", f"infiniband/{hca}/ports/1"
    attributes = {
        f"{adapter}/node_type": "1: CA",
        f"{adapter}/hca_type": "MT4115",
        f"{adapter}/fw_ver": "12.28.2006",
        f"{adapter}/hw_rev": "0",
        f"{adapter}/node_guid": guid,
        f"{adapter}/sys_image_guid": guid,
        f"{adapter}/node_desc": f"{node} {hca}",
        f"{adapter}/board_id": "MT_2180110032",
        f"{port}/state": state,
        f"{port}/phys_state": "5: LinkUp" if active else "2: Polling",
        f"{port}/rate": rate,
        f"{port}/link_layer": link_layer,
        f"{port}/lid": "0x1",
        f"{port}/sm_lid": "0x1",
        f"{port}/sm_sl": "0",
        f"{port}/lid_mask_count": "0",
        f"{port}/cap_mask": "0x2651e848",
        f"{port}/gids/0": f"fe80:0000:0000:0000:{guid}",
        f"{port}/pkeys/0": "0xffff",
        f"{port}/counters/symbol_error": "0",
        f"{port}/counters/link_downed": "0",
        f"{port}/counters/port_rcv_errors": "0",
        "infiniband_mad/abi_version": "5",
        "infiniband_mad/umad0/ibdev": hca,
        "infiniband_mad/umad0/port": "1",
        "infiniband_verbs/abi_version": "6",
    }
    remove_infiniband(nodes, node)
    _unpack(nodes, node, {f"{SYSFS[1:]}/{path}": f"{text}\n" for path, text in attributes.items()})
    nodes.root(
        node,
        "sh",
        "-ec",
        f"mount -t overlay -o lowerdir={SYSFS}:/sys/class overlay /sys/class; "
        "mkdir -p /dev/infiniband; mknod /dev/infiniband/uverbs0 c 231 192",
    )


def remove_infiniband(nodes: Nodes, node: str) -> None:
    nodes.root(node, "sh", "-c", f"[ ! -e {SYSFS} ] || umount /sys/class; rm -rf {SYSFS} /dev/infiniband")


def _unpack(nodes, node, files):
    """Write files, path -> text, on a node; programs are those in a folder bin."""
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, text in files.items():
                member = tarfile.TarInfo(path)
                content = text.encode()
                member.size, member.mode = len(content), 0o755 if "/bin/" in path else 0o644
                archive.addfile(member, io.BytesIO(content))
        packed.seek(0)
        nodes.engine.docker("cp", "-", f"{nodes.container(node)}:/", stdin=packed)
