#!/usr/bin/env python3
"""Names each C++ file that clang-format would change, and the first place. --fix changes them.

  format.py --clang-format PROGRAM [--root FOLDER] [--fix]
"""

import argparse
import pathlib
import subprocess
import sys

FOLDERS = ('include', 'src', 'sim', 'tests', 'tools', 'examples', 'bench', 'bindings')
SUFFIXES = ('.h', '.cc', '.c', '.cu')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--clang-format', default='clang-format-14')
    parser.add_argument('--root', type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument('--fix', action='store_true')
    args = parser.parse_args()
    files = [p for folder in FOLDERS for p in sorted((args.root / folder).rglob('*'))
             if p.suffix in SUFFIXES]
    if not files:
        print('no files')
        return 1
    mode = ['-i'] if args.fix else ['--dry-run', '--Werror', '--ferror-limit=1']
    bad = 0
    for file in files:
        result = subprocess.run([args.clang_format, '--style=file', *mode, str(file)], text=True,
                                capture_output=True)
        if result.returncode != 0:
            bad += 1
            print(result.stderr.replace(f'{args.root}/', ''), end='')
    print(f'{len(files)} files, {bad} not formatted (scripts/check --format mends them)')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
