"""Push all of a depot to a remote, in a process of its own."""

import sys
from pathlib import Path

from flashdepot.depot import Depot
from flashdepot.events import Events
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes import Remotes
from flashdepot.remotes.push import push

depot = Depot(Path(sys.argv[1]), on_problem=print)
remote = Remotes(lambda: [RemoteSettings("team", sys.argv[2])], print).all()[0]
push(remote, depot, list(depot.artifacts.manifests()), Events())
