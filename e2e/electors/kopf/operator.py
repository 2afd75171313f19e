"""An operator that says what it sees, while kopf's peers let it: it pauses for each other of the same priority."""

import sys

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.peering.mandatory = not settings.peering.standalone
    # Of 60 s, the default.
    settings.peering.lifetime = 10
    settings.posting.enabled = False


@kopf.on.event("", "v1", "serviceaccounts", annotations={"touched": kopf.PRESENT})
def saw(annotations, **_):
    # One write a line: handlers run in threads of their own.
    sys.stdout.write(f"saw {annotations['touched']}\n")
    sys.stdout.flush()
