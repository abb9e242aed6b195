"""The counters of adapters, as the kernel's files have them."""

from repro.launch.agent.adapters import counters


def test_every_counter_of_every_port_is_read(tmp_path):
    """Files that cannot be read or hold no number, as those of counters that a port does not have, are left out."""
    for path, text in {
        "mlx5_0/ports/1/counters/port_xmit_data": "12345678901234\n",
        "mlx5_0/ports/1/hw_counters/lifespan": "10\n",
        "mlx5_0/ports/1/counters/VL15_dropped": "N/A (no PMA)\n",
        "mlx5_0/ports/2/hw_counters/out_of_sequence": "0\n",
        "mlx5_0/ports/1/state": "4: ACTIVE\n",
        "rxe0/ports/1/state": "4: ACTIVE\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "mlx5_0/ports/1/counters/folder").mkdir()
    assert counters(str(tmp_path)) == {
        "mlx5_0:1": {"counters/port_xmit_data": 12345678901234, "hw_counters/lifespan": 10},
        "mlx5_0:2": {"hw_counters/out_of_sequence": 0},
        "rxe0:1": {},
    }


def test_a_node_without_an_adapter_has_none(tmp_path):
    assert counters(str(tmp_path / "absent")) == {}
