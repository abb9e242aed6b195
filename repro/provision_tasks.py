"""The tasks that set nodes up and take that back."""

from pathlib import Path

from invoke import Exit, task

from repro.fabfile import BAD_INPUT, FAILED, check_settings, setting


class provision_errors:
    """Turns what is wrong with an inventory or a setting into a message and an exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        from repro.inventory import ClusterError
        from repro.pins import PinError
        from repro.provision import ProvisionError

        if isinstance(error, ClusterError | PinError | ProvisionError):
            raise Exit(str(error), BAD_INPUT) from error


def _cluster():
    from repro.cluster import load_cluster
    from repro.inventory import inventory_names

    check_settings()
    if not setting("CLUSTER"):
        raise Exit(
            f"CLUSTER=NAME: name the cluster; there are {', '.join(inventory_names())}, or the path of an inventory",
            BAD_INPUT,
        )
    with provision_errors():
        return load_cluster(setting("CLUSTER"))


def _check() -> bool:
    if setting("CHECK") not in (None, "0", "1"):
        raise Exit(f"CHECK={setting('CHECK')}: it is 1 for a dry run, or left out", BAD_INPUT)
    return setting("CHECK") == "1"


def _tell(done, what: str, check: bool) -> None:
    """One line a node, and the exit status."""
    what = f"dry run of {what}" if check else what
    for outcome in done.outcomes:
        print(outcome.line(), *(f"    {note}" for note in outcome.notes), sep="\n")
    if not done.succeeded:
        failed = [outcome.node for outcome in done.outcomes if outcome.failed]
        raise Exit(
            f"{what} failed on {', '.join(failed) or 'no node in particular'}, see above; what is done stays "
            "done, so mend the cause and run the same command again",
            FAILED,
        )
    changed = "; nothing was changed" if check else ""
    print(f"{what}: {len(done.outcomes)} nodes in {done.seconds:.1f} s{changed}")


@task
def provision(c):
    """Set every node of a cluster up the same [CLUSTER= CHECK=1 LIMIT= TAGS= BUNDLE=]."""
    from repro.provision import provision as set_up

    cluster, check = _cluster(), _check()
    bundle = Path(setting("BUNDLE")) if setting("BUNDLE") else None
    with provision_errors():
        done = set_up(cluster, check=check, limit=setting("LIMIT", ""), tags=setting("TAGS", ""), bundle=bundle)
    _tell(done, "provisioning", check)
    if not check:
        from repro.cluster_tasks import fingerprint

        fingerprint(c)


@task
def deprovision(c):
    """Take back what provisioning added to the nodes [CLUSTER= CHECK=1 LIMIT=]."""
    from repro.provision import deprovision as take_back

    cluster, check = _cluster(), _check()
    with provision_errors():
        done = take_back(cluster, check=check, limit=setting("LIMIT", ""))
    _tell(done, "deprovisioning", check)
