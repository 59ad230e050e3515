// The shared libraries that a program loads before its main, read from its file as the loader would
// find them; nothing is run. Not those that it opens by itself later. Any thread.
#pragma once

#include <string>
#include <vector>

#include "strata/result.h"

namespace strata::tools {

struct Library {
  std::string name;       // "libopenblas.so.0"
  std::string path;       // empty where it was not found
  std::string needed_by;  // name of a library or of the program
};

struct ProgramLibraries {
  std::vector<Library> libraries;  // the program's own first, then what those need
  bool has_build_id = false;       // without one it has no LocalFunction
};

// Libraries beyond this number are not followed.
inline constexpr size_t kLibrariesMax = 4096;

// kNotFound, kUnsupported where it is no ELF program of this machine, kCorrupt where its tables
// lead out of the file.
Result<ProgramLibraries> read_program_libraries(const std::string& path);

}  // namespace strata::tools
