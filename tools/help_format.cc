#include "tools/help_format.h"

#include <sstream>
#include <string_view>

#include "tools/text.h"

namespace strata::tools {
namespace {

constexpr size_t kColumns = 96;
constexpr size_t kNameColumns = 26;

// Each line of the text on its own.
std::string wrapped_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out += wrapped(text.substr(0, end), kColumns, 0) + '\n';
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

}  // namespace

HelpFormat::HelpFormat() {
  column_width(kNameColumns);
  label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  return wrapped_lines(app->get_description()) + '\n';
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  return wrapped_lines(app->get_footer());
}

// What is wrapped here is set below its own beginning by CLI11.
std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_name(),
                           wrapped(command->get_description(), kColumns - kNameColumns, 0),
                           kNameColumns);
  return std::move(out).str();
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  return wrapped(option->get_description(), kColumns - kNameColumns, 0);
}

}  // namespace strata::tools
