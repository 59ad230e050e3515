#!/usr/bin/env python3
"""Installs a build into a temporary prefix and looks at it as a user would.

  install_test.py BUILD --version X.Y.Z --cc CC --cxx CXX [--flags "..."] [--faults ON|OFF]

Consumer projects are configured, built and run against the installed tree alone. What the library
exports, needs and contains is read with the tools of binutils.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FAULT_MARK = b'faults_on'  # the inline namespace that base/fault.h has under STRATA_FAULTS
OPTIONS = argparse.Namespace()


def run(*command, cwd=None, env=None):
    result = subprocess.run([str(c) for c in command], cwd=cwd, text=True, timeout=280,
                            env=dict(os.environ, **(env or {})), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise AssertionError(f'{" ".join(map(str, command))}:\n{result.stdout}')
    return result.stdout


def outcome(*command):
    """(exit code, stdout, stderr) of a program that may end in any way."""
    result = subprocess.run([str(c) for c in command], text=True, timeout=280,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    return result.returncode, result.stdout, result.stderr


def rooms():
    return {path.name for path in (ROOT / 'src').iterdir() if path.is_dir()}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='test-install-'))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        first = cls.folder / 'first'
        run('cmake', '--install', OPTIONS.build, '--prefix', first)
        # An installed tree works wherever it is moved to.
        cls.prefix = cls.folder / 'prefix'
        first.rename(cls.prefix)
        cls.lib = next(cls.prefix.rglob('libstrata.so')).parent
        cls.library = (cls.lib / 'libstrata.so').resolve()

    def test_a_cmake_project_finds_builds_and_runs(self):
        build = self.folder / 'consumer'
        # Headers compile the same under a sanitizer, only slower.
        alone = 'OFF' if OPTIONS.flags else 'ON'
        run('cmake', '-S', HERE / 'consumer', '-B', build, '-G', 'Ninja',
            '-DCMAKE_BUILD_TYPE=Debug', f'-DALONE={alone}', f'-DCMAKE_PREFIX_PATH={self.prefix}',
            f'-Dstrata_INCLUDE_DIR={self.prefix / "include"}', f'-DCMAKE_C_COMPILER={OPTIONS.cc}',
            f'-DCMAKE_CXX_COMPILER={OPTIONS.cxx}', f'-DCMAKE_C_FLAGS={OPTIONS.flags}',
            f'-DCMAKE_CXX_FLAGS={OPTIONS.flags}')
        run('cmake', '--build', build, '-j2')
        out = run('ctest', '--output-on-failure', '--no-tests=error', cwd=build)
        self.assertIn('100% tests passed', out)

    def test_a_makefile_project_finds_it_by_pkg_config(self):
        path = {'PKG_CONFIG_PATH': str(self.lib / 'pkgconfig')}
        flags = run('pkg-config', '--cflags', '--libs', 'strata', env=path).split()
        self.assertNotIn('-lfmt', flags)
        self.assertEqual(run('pkg-config', '--modversion', 'strata', env=path).strip(),
                         OPTIONS.version)
        source = self.folder / 'main.cc'
        source.write_text('#include <strata/strata.h>\n'
                          'int main() { return name_of(strata::DType::kF32) == "f32" ? 0 : 1; }\n')
        program = self.folder / 'by_pkg_config'
        run(OPTIONS.cxx, '-std=c++20', *OPTIONS.flags.split(), source, '-o', program, *flags,
            f'-Wl,-rpath,{self.lib}')
        run(program)

    def test_the_library_exports_the_public_api_alone(self):
        lines = run('nm', '-DC', '--defined-only', self.library).splitlines()
        names = [line.split(' ', 2)[2].split('@')[0] for line in lines if ' A ' not in line]
        self.assertIn('strata::name_of(strata::Code)', names)
        self.assertTrue(any(n.startswith('strata::Error::at(') for n in names), names)
        inner = re.compile(r'\bstrata::(?:' + '|'.join(sorted(rooms())) + r')::')
        for name in names:
            plain = re.sub(r'^(?:vtable|typeinfo|typeinfo name|VTT|guard variable) for ', '', name)
            self.assertRegex(plain, r'^(?:strata::|strata_)', name)
            self.assertIsNone(inner.search(plain), f'{name} is of a room')

    def test_the_library_has_its_soname_and_is_hardened(self):
        dynamic = run('readelf', '-dW', self.library)
        minor = '.'.join(OPTIONS.version.split('.')[:2])
        self.assertIn(f'soname: [libstrata.so.{minor}]', dynamic)
        self.assertRegex(dynamic, r'\bNOW\b')
        self.assertNotIn('RUNPATH', dynamic)
        self.assertNotIn('TEXTREL', dynamic)
        headers = run('readelf', '-lW', self.library)
        self.assertIn('GNU_RELRO', headers)
        self.assertRegex(headers, r'GNU_STACK.* RW ')
        self.assertEqual(self.library.name, f'libstrata.so.{OPTIONS.version}')

    def test_the_version_is_the_same_everywhere(self):
        text = (self.prefix / 'include/strata/version.h').read_text()
        self.assertIn(f'#define STRATA_VERSION "{OPTIONS.version}"', text)
        numbers = re.findall(r'#define STRATA_VERSION_M?\w+ (\d+)', text)
        self.assertEqual('.'.join(numbers), OPTIONS.version)
        minor = '.'.join(OPTIONS.version.split('.')[:2])
        self.assertIn(f'STRATA_{minor} {{', (ROOT / 'cmake/strata.map').read_text())

    def test_every_public_header_is_installed_and_nothing_else(self):
        installed = {p.name for p in (self.prefix / 'include').rglob('*') if p.is_file()}
        public = {p.name for p in (ROOT / 'include/strata').iterdir()}
        self.assertEqual(installed, public)

    def test_the_command_says_its_version_and_knows_the_machine(self):
        strata = self.prefix / 'bin/strata'
        self.assertEqual(run(strata, 'version').split('\n')[0], f'strata {OPTIONS.version}')
        self.assertEqual(json.loads(run(strata, 'version', '--json'))['version'], OPTIONS.version)
        info = json.loads(run(strata, 'info', '--json'))
        self.assertGreaterEqual(info['machine']['pus'], 1)
        self.assertTrue(info['start_methods']['fork']['possible'])

    def test_the_command_needs_no_library_of_ours_and_never_openblas(self):
        needed = run('readelf', '-dW', self.prefix / 'bin/strata')
        self.assertNotIn('libstrata', needed)
        self.assertNotIn('blas', needed)
        self.assertNotIn('RUNPATH', needed)

    def test_the_doctor_works_where_it_is_installed(self):
        code, out, err = outcome(self.prefix / 'bin/strata', 'doctor', '--json',
                                 '--deadline-ms', 120000)
        report = json.loads(out)
        self.assertEqual(code, 0 if report['problem_count'] == 0 else 1, err)
        level = {finding['check']: finding['level'] for finding in report['findings']}
        for check in ('memfd', 'pidfd', 'fork', 'forkserver', 'worker'):
            self.assertEqual(level[check], 'ok', out)

    def test_the_demonstration_finds_its_parts_where_it_is_installed(self):
        if not json.loads(run(self.prefix / 'bin/strata', 'version', '--json'))['demo']:
            self.skipTest('built without the examples')
        code, out, err = outcome(self.prefix / 'bin/strata', 'demo', '--json', '--no-augment',
                                 '--tile', 64)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['reference']['predictions_differ'], 0)
        attribution = self.prefix / 'share/strata/digits.README.md'
        self.assertIn('CC BY 4.0', attribution.read_text())

    def test_package_files_name_no_place_of_the_build(self):
        for file in self.prefix.rglob('*'):
            if file.suffix in ('.cmake', '.pc', '.h'):
                text = file.read_text()
                for place in (str(ROOT), str(OPTIONS.build), str(self.folder)):
                    self.assertNotIn(place, text, file)

    def test_a_library_without_faults_asked_for_contains_none(self):
        probe = self.folder / 'probe.cc'
        probe.write_text('#include "base/fault.h"\n'
                         'int probe() { return strata::base::fault() == 1 ? 1 : 0; }\n')
        for define, expected in (('-DSTRATA_FAULTS=1', True), ('-USTRATA_FAULTS', False)):
            out = self.folder / 'probe.so'
            run(OPTIONS.cxx, '-std=c++20', '-O2', '-shared', '-fPIC', define, f'-I{ROOT / "src"}',
                probe, '-o', out)
            self.assertEqual(FAULT_MARK in out.read_bytes(), expected, 'the mark tells nothing')
        if not OPTIONS.faults:
            self.assertNotIn(FAULT_MARK, self.library.read_bytes())
            self.assertNotIn(b'STRATA_FAULTS', self.library.read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('build', type=pathlib.Path)
    parser.add_argument('--version', required=True)
    parser.add_argument('--cc', required=True)
    parser.add_argument('--cxx', required=True)
    parser.add_argument('--flags', default='')
    parser.add_argument('--faults', type=lambda text: text == 'ON', default=False)
    parser.parse_args(namespace=OPTIONS)
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == '__main__':
    main()
