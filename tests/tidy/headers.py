#!/usr/bin/env python3
"""Compiles each header of src/ and include/ alone, syntax only; call.h and export.h also as C.

  headers.py --cxx COMPILER --cc COMPILER [--include FOLDER ...] [--root FOLDER]
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

WARNINGS = ['-Wall', '-Wextra', '-Werror', '-Wno-unused-function']
# Headers that must be C as well: a callable's author may write C.
C_HEADERS = ('strata/call.h', 'strata/export.h')


def compile_alone(args):
    command, header = args
    text = f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(command, input=text, text=True, capture_output=True, timeout=300)
    return header, command, result.returncode, result.stderr


def jobs(args, root):
    flags = [f'-I{root / "include"}', f'-I{root / "src"}', *(f'-isystem{i}' for i in args.include)]
    for base in (root / 'include', root / 'src'):
        for path in sorted(base.rglob('*.h')):
            header = path.relative_to(base).as_posix()
            rest = ['-fsyntax-only', *WARNINGS, *flags, '-']
            yield [args.cxx, '-x', 'c++', '-std=c++20', *rest], header
            if header in C_HEADERS:
                yield [args.cc, '-x', 'c', '-std=c11', *rest], header


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--cxx', default='c++')
    parser.add_argument('--cc', default='cc')
    parser.add_argument('--include', action='append', default=[])
    parser.add_argument('--root', type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    args = parser.parse_args()
    failed = 0
    work = list(jobs(args, args.root))
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for header, command, code, text in pool.map(compile_alone, work):
            if code != 0:
                failed += 1
                print(f'{header} does not compile alone ({command[0]}):\n{text}')
    print(f'{len(work)} compiled, {failed} failed')
    return 1 if failed or not work else 0


if __name__ == '__main__':
    sys.exit(main())
