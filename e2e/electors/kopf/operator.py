"""An operator that says what it sees, while kopf's peers let it: it pauses for each other of the same priority."""

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.peering.mandatory = True
    # Of 60 s, the default.
    settings.peering.lifetime = 10
    settings.posting.enabled = False


@kopf.on.event("", "v1", "serviceaccounts", annotations={"touched": kopf.PRESENT})
def saw(annotations, **_):
    print("saw", annotations["touched"], flush=True)
