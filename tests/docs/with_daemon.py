#!/usr/bin/env python3
"""Runs a program with a daemon of its own.

  with_daemon.py STRATA FOLDER PROGRAM [ARGUMENT ...]

Starts `strata serve` on a port of 127.0.0.1 that the kernel chooses, with the libraries of FOLDER,
and the program with HOST:PORT as its last argument. The exit code is the program's, or 1 where the
daemon does not end in order.
"""
import contextlib
import re
import signal
import subprocess
import sys
import tempfile


@contextlib.contextmanager
def daemon(strata, folder, env=None):
    """The endpoint of a daemon that ends with the block."""
    words = [strata, 'serve', '--listen', '127.0.0.1:0', '--allow-library', str(folder)]
    with tempfile.TemporaryFile('w+') as log, subprocess.Popen(
            words, text=True, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log) as serve:
        try:
            line = serve.stdout.readline()
            found = re.search(r'127\.0\.0\.1:\d+', line)
            if found:
                yield found.group()
        finally:
            serve.send_signal(signal.SIGTERM)
            serve.wait(timeout=60)
        log.seek(0)
        if not found or serve.returncode != 0:
            raise RuntimeError(f'the daemon ends with {serve.returncode}\n{line}{log.read()}')


def main():
    strata, folder, program = sys.argv[1:4]
    with daemon(strata, folder) as endpoint:
        return subprocess.run([program, *sys.argv[4:], endpoint], stdin=subprocess.DEVNULL,
                              timeout=120, check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
