"""The parts of scripts/check that a shell does badly.

  check_tools.py counts REPORT     "passed failed skipped" of a JUnit report of CTest, then the
                                   names of the failed, one a line
  check_tools.py leftovers MARK    kills each process whose environment holds MARK and prints it
"""

import os
import pathlib
import signal
import sys
import xml.etree.ElementTree as tree


def counts(report):
    cases = tree.parse(report).getroot().findall('testcase')
    failed, skipped = [], 0
    for case in cases:
        if case.get('status') == 'fail' or case.find('failure') is not None:
            failed.append(case.get('name'))
        elif case.get('status') in ('notrun', 'disabled'):
            skipped += 1
    print(len(cases) - skipped - len(failed), len(failed), skipped)
    print('\n'.join(failed))


def leftovers(mark):
    """The environment finds also what has left its process group and its parent."""
    for process in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            if mark.encode() not in (process / 'environ').read_bytes().split(b'\0'):
                continue
            command = (process / 'cmdline').read_bytes().replace(b'\0', b' ')
            os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile, or is another user's
        print(f'{process.name} {command.decode(errors="replace").strip()[:120]}')


if __name__ == '__main__':
    {'counts': counts, 'leftovers': leftovers}[sys.argv[1]](sys.argv[2])
