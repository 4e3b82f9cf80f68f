"""Script that becomes a broker which ends with its parent; it is never imported.

``python launch.py PARENT mosquitto ARGUMENTS...`` or ``python launch.py PARENT iotcore HOST PORT PAYLOAD``
"""

import ctypes
import logging
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, even by ``kill -9``; Linux only.

    This happens after exec, and not between fork and exec, where a process with threads must not run Python.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


def _raise_file_limit() -> None:
    """Raise the limit of open files, as each connection is one, and many systems start at 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _iotcore(host: str, port: str, payload: str) -> None:
    from iotcore.iotcore import IotCoreBroker  # noqa: PLC0415 - it may be missing if mosquitto is used

    logging.getLogger("rumqttd").setLevel(logging.CRITICAL + 1)  # it reports each packet as an error
    broker = IotCoreBroker(listen=host, port=int(port), max_payload_size=int(payload))
    broker.check_ports()
    broker.run_forever()


if __name__ == "__main__":
    _die_with(int(sys.argv[1]))
    _raise_file_limit()
    if sys.argv[2] == "iotcore":
        _iotcore(*sys.argv[3:])
    else:
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - our own command line
