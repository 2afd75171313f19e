"""An ordinary operator, as anybody would write it with kopf: it sets Websites up, and looks after each by a timer and a daemon.
It knows nothing of other replicas at work beside it."""

import asyncio
import base64
import os
import time

import kopf
import kubernetes
from kubernetes.client.rest import ApiException

import report

WEBSITES = ("web.example.com", "v1", "websites")
INSTANCE = os.environ.get("INSTANCE", os.environ.get("HOSTNAME", ""))
# Seconds between two beats of a timer or a daemon.
INTERVAL = 5


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.peering.mandatory = not settings.peering.standalone
    # Of 60 s, the default.
    settings.peering.lifetime = 10
    settings.posting.enabled = False
    settings.execution.max_workers = int(os.environ.get("CONCURRENCY", "4"))


@kopf.on.create(*WEBSITES, backoff=1)
@kopf.on.update(*WEBSITES, field="spec", backoff=1)
def set_up(body, meta, spec, name, namespace, uid, patch, **_):
    with report.work(uid, meta["generation"]):
        time.sleep(spec.get("workMillis", 0) / 1000)
        core = kubernetes.client.CoreV1Api()
        metadata = {"name": name, "namespace": namespace}
        content = {"index.html": spec.get("content", "")}
        site = {"site": base64.b64encode(name.encode()).decode()}
        for kind, data in (("config_map", content), ("secret", site)):
            child = {"metadata": dict(metadata), "data": data}
            # The owner reference says `controller: true`.
            kopf.append_owner_reference(child, owner=body)
            put(core, kind, child)
    # kopf writes it when the handler has ended.
    patch.status["observedGeneration"] = meta["generation"]
    patch.status["reconciledBy"] = INSTANCE


def put(core, kind, child):
    """Creates a child, or changes what it has."""
    name, namespace = child["metadata"]["name"], child["metadata"]["namespace"]
    try:
        found = getattr(core, f"read_namespaced_{kind}")(name, namespace)
    except ApiException as error:
        if error.status != 404:
            raise
        getattr(core, f"create_namespaced_{kind}")(namespace, child)
        return
    if found.data != child["data"]:
        getattr(core, f"patch_namespaced_{kind}")(name, namespace, {"data": child["data"]})


@kopf.on.delete(*WEBSITES)
def tear_down(name, **_):
    say(f"deleted {name}")


@kopf.on.event(*WEBSITES)
def saw(type, name, **_):
    say(f"saw {type or 'LISTED'} {name}")


@kopf.timer(*WEBSITES, interval=INTERVAL)
def look_at(name, uid, **_):
    with report.work(uid, report.BEAT):
        say(f"timer {name}")


@kopf.daemon(*WEBSITES)
async def watch_over(name, uid, stopped, **_):
    say(f"daemon {name} begins")
    while not stopped:
        await asyncio.to_thread(beat, name, uid)
        await stopped.wait(INTERVAL)
    say(f"daemon {name} ends")


def beat(name, uid):
    with report.work(uid, report.BEAT):
        say(f"daemon {name}")


def say(line):
    # One write a line: handlers run in threads of their own.
    print(f"{line}\n", end="", flush=True)
