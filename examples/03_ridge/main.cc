// ridge: kernel ridge regression on handwritten digits, as graphs of tasks over tiles.
//
// Reads the digits, solves in child processes, tells what was measured, and compares with an
// independent program. Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments
// or bad data.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>

#include "options.h"
#include "solve.h"

namespace {

int fail(const std::string& why, int code) {
  std::fprintf(stderr, "ridge: %s\n", why.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // In a log, too, lines stand in the order in which they were written.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::error_code error;
  // Kernels, reference and data lie beside the program.
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return fail("/proc/self/exe cannot be read: " + error.message(), ridge::kFailed);
  ridge::Options options;
  options.kernels = folder.string();
  options.reference = (folder / "ridge_reference").string();
  options.data = (folder / "digits.csv.gz").string();

  CLI::App app("Kernel ridge regression on handwritten digits by tiled Cholesky factorisation.");
  ridge::add_options(app, &options);
  app.footer(
      "Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments or bad data, "
      "130 ended by SIGINT, 143 by SIGTERM.");
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return "ridge: " + std::string(e.what()) + " (--help tells the options)\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : ridge::kBadInput;
  }
  const ridge::Report report = ridge::solve(options, stdout);
  return report.code == 0 ? 0 : fail(report.error, report.code);
}
