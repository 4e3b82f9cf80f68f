"""A command in a process that the server of peers forks, which has imported torch already."""

import os
import signal
import sys

from p2pfl.cli import main


def play(arguments, folder, environment, out, err, *, known):
    """Run a command in a folder, in a session of its own, with its output to these connections; end as it ends.

    It begins once its parent knows the process, which could end before that otherwise.
    """
    known.recv()
    known.close()
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for connection, number in ((out, 1), (err, 2)):
        os.dup2(connection.fileno(), number)
        connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the server blocks it
    sys.exit(main(arguments))
