#!/usr/bin/env python3
"""Runs a program with a daemon of its own.

  with_daemon.py STRATA FOLDER EXPECTED PROGRAM [ARGUMENT ...]

Starts `strata serve` on a port of 127.0.0.1 that the kernel chooses, with the libraries of FOLDER,
and the program with HOST:PORT as its last argument. The program must exit with 0, the daemon end in
order, and the program's stdout match the regular expression EXPECTED.
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
    strata, folder, expected, *program = sys.argv[1:]
    with daemon(strata, folder) as endpoint:
        ran = subprocess.run([*program, endpoint], text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, timeout=120, check=False)
    print(ran.stdout, end='')
    if ran.returncode != 0 or not re.fullmatch(expected, ran.stdout.strip()):
        print(f'exit code {ran.returncode}; expected is 0, and {expected}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
