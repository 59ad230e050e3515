// HelpFormat: how --help is laid out: lines of a terminal's width, and the word COMMAND for what
// CLI11 calls a subcommand. The main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace strata::tools {

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat();
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace strata::tools
