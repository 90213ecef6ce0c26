"""The executor of a Dask cluster: actions run on its workers, by the same code as on this machine.

``executor`` is the engine's side, ``rooms`` chooses a worker, ``cluster`` all that speaks with Dask, ``tasks`` what Dask
calls in a worker, and ``agent`` the process of flashdepot that a worker starts for one build. ``orders`` is what they
say to each other.
"""
