// What ridge can be told, and the command line that tells it. A value; one thread parses.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace ridge {

struct Options {
  std::string program = "ridge";  // begins each line on stderr
  std::string kernels;            // folder of libridge_kernels.so
  std::string reference;          // the program ridge_reference
  std::string data;               // digits.csv.gz
  std::string start = "fork";     // or "inline"
  int workers = 2;
  size_t tile = 128;     // rows and columns of a tile
  std::string timeline;  // a file to write; none where empty
  bool augment = false;  // each image also moved by a pixel to each side
};

// Adds the options to `app`; parsing it fills `options`, which must outlive it. What `options`
// holds before is what they are when they are not named.
void add_options(CLI::App& app, Options* options);

}  // namespace ridge
