// Numbers as people read them. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace strata::tools {

// "7.6 GiB", "540 KiB", "12 B".
std::string bytes_text(uint64_t bytes);
// "65536", or "unlimited" for none.
std::string limit_text(std::optional<uint64_t> limit);
// Cut into lines of at most `columns`, each after the first begun with `indent` blanks.
std::string wrapped(std::string_view text, size_t columns, size_t indent);

// The number, or null.
nlohmann::ordered_json json_of(std::optional<uint64_t> number);
// On stdout, with two blanks a level. Bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);

}  // namespace strata::tools
