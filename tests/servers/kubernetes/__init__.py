"""A Kubernetes for tests: an API server over real HTTP, and a Job controller that is played.

    with ApiServer() as server, Controller(server.state, env) as controller:
        server.kubeconfig(folder)           # for clients
        server.restart(), server.state.forget_history()
        controller.twice, controller.lose(name), controller.restart()

The server keeps what clients rely on: 409 for a second create, resource versions, watches that resume, 410 when they
cannot, deletion with propagation, a Job's and a pod's status, logs. The controller starts each pod as a process.
"""

from tests.servers.kubernetes.controller import Controller
from tests.servers.kubernetes.server import ApiServer
from tests.servers.kubernetes.state import State

__all__ = ["ApiServer", "Controller", "State"]
