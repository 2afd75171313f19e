"""Tells a collector when work on an object starts and ends. It is all that is special about this operator."""

import contextlib
import http.client
import json
import os
import urllib.parse

from kubernetes.client.rest import ApiException

# A collector that hangs must not hold up the operator for ever.
TIMEOUT = 10
# Work that belongs to no generation of the object: what a timer or a daemon does.
BEAT = 0


@contextlib.contextmanager
def work(uid, generation):
    """Covers the work on an object. When it begins the collector knows."""
    _post(phase="start", uid=uid, generation=generation)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except ApiException as error:
        if is_already_exists(error):
            outcome = "alreadyExists"
        raise
    finally:
        _post(phase="end", uid=uid, generation=generation, outcome=outcome)


def is_already_exists(error):
    """Whether there is such an object already, which a conflict of versions does not say."""
    return error.status == 409 and json.loads(error.body).get("reason") == "AlreadyExists"


def _post(**message):
    url = urllib.parse.urlsplit(os.environ.get("COLLECTOR", ""))
    if not url.netloc:
        return
    # Past any HTTP_PROXY.
    connection = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT)
    with contextlib.closing(connection):
        body = json.dumps({"instance": os.environ["INSTANCE"], **message})
        connection.request("POST", url.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status // 100 != 2:
            raise RuntimeError(f"report to the collector: {response.status} {response.reason}")
