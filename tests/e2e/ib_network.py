"""A simulated InfiniBand network: the real diagnostic tools of each node talk to ibsim in the place of adapters.

Every node runs its own simulator of the same switch and adapters, with a subnet manager's work done once.
"""

from concurrent.futures import ThreadPoolExecutor

from repro.simulation.nodes import Nodes

PACKAGES = "ibsim-utils infiniband-diags opensm"
TOOLS = ("ibstat", "iblinkinfo", "perfquery", "ibnetdiscover")
START = f"""
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install {PACKAGES} > /dev/null
cat > /etc/ibsim-network
systemd-run --quiet --unit ibsim sh -c 'sleep infinity | ibsim -s /etc/ibsim-network'
until grep --quiet sim:ctl /proc/net/unix; do sleep 0.2; done
SIM_HOST=$(hostname) ibsim-run opensm --once > /dev/null
for tool in {" ".join(TOOLS)}; do
    printf '#!/bin/sh\\nSIM_HOST=$(hostname) exec ibsim-run /usr/sbin/%s "$@"\\n' $tool > /usr/local/bin/$tool
    chmod 755 /usr/local/bin/$tool
done
"""


def lay_network(nodes: Nodes) -> None:
    """One switch with an adapter of each node at it; ibstat, iblinkinfo and others then answer on every node."""
    switch = "".join(f'[{port}] "{node}"[1]\n' for port, node in enumerate(nodes.names, 1))
    adapters = "".join(f'\nHca 1 "{node}"\n[1] "S1"[{port}]\n' for port, node in enumerate(nodes.names, 1))
    topology = f'Switch {max(8, nodes.count)} "S1"\n{switch}{adapters}'
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: nodes.root(node, "sh", "-ec", START, input=topology), nodes.names))
