#include "wire/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/result.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/descriptor.h"
#include "wire/descriptor.h"
#include "wire/json_walk.h"
#include "wire/json_writer.h"

namespace strata::wire {
namespace json {

std::string shown(std::string_view text) {
  std::string out(base::cut_text(text, kShownBytesMax));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out.size() < text.size() ? out + "..." : out;
}

std::string text_refusal(std::string_view text, uint32_t bytes_max) {
  if (text.size() > bytes_max)
    return fmt::format("has {} bytes, at most {}", text.size(), bytes_max);
  if (text.find('\0') != std::string_view::npos) return "has a zero byte";
  return base::utf8_valid(text) ? "" : "is not UTF-8";
}

std::string variable_refusal(std::string_view name, uint32_t bytes_max) {
  if (name.size() > bytes_max)
    return fmt::format("has {} bytes, at most {}", name.size(), bytes_max);
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (!name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), fits)) return "";
  return "is no name of a variable: letters, digits and _, no digit first";
}

std::string count_refusal(size_t count, size_t count_max) {
  return count <= count_max ? "" : fmt::format("has {} items, at most {}", count, count_max);
}

std::string range_text(uint64_t min, uint64_t max) {
  return fmt::format("it must be {} to {}", min, max);
}

void JsonWriter::boolean(std::string_view key, bool value) {
  begin(key);
  *out_ += value ? "true" : "false";
}

void JsonWriter::text(std::string_view key, const std::string& value, uint32_t bytes_max) {
  begin(key);
  refuse(key, text_refusal(value, bytes_max));
  quoted(value);
}

void JsonWriter::names(std::string_view key,
                       const std::vector<std::pair<std::string, std::string>>& values,
                       size_t count_max, uint32_t name_bytes_max, uint32_t value_bytes_max) {
  begin(key);
  refuse(key, count_refusal(values.size(), count_max));
  *out_ += '{';
  first_ = true;
  std::set<std::string_view> had;
  for (const auto& [name, value] : values) {
    const std::string at = fmt::format("{}.{}", key, shown(name));
    refuse(at, variable_refusal(name, name_bytes_max));
    if (!had.insert(name).second) refuse(at, "comes twice");
    begin(name);
    refuse(at, text_refusal(value, value_bytes_max));
    quoted(value);
  }
  *out_ += '}';
  first_ = false;
}

void JsonWriter::begin(std::string_view key) {
  if (!std::exchange(first_, false)) *out_ += ',';
  quoted(key);
  *out_ += ':';
}

void JsonWriter::quoted(std::string_view text) {
  *out_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *out_ += '\\';
      *out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      *out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      *out_ += c;
    }
  }
  *out_ += '"';
}

void JsonWriter::refuse(std::string_view key, std::string_view why) {
  if (error_.empty() && !why.empty()) error_ = fmt::format("{}{}: {}", path_, key, why);
}

bool JsonWalk::here(std::string_view key) {
  if (left_ || found_) return false;
  STRATA_DCHECK(field_ < 32);
  const uint32_t bit = 1u << field_++;
  if (!at_last()) return false;
  Place& place = places_[depth_];
  if (event_.step == Step::kEnd) {
    if (missing_.empty() && (place.fields & bit) == 0) missing_ = key;
    return false;
  }
  if (place.key != key) return false;
  found_ = true;
  if (event_.step != Step::kKey) return true;
  if ((place.fields & bit) != 0) allowed("comes twice");
  place.fields |= bit;
  return false;
}

void JsonWalk::names(std::string_view key, std::vector<std::pair<std::string, std::string>>& values,
                     size_t count_max, uint32_t name_bytes_max, uint32_t value_bytes_max) {
  if (!within(key)) {
    if (here(key)) is(Step::kObject, "an object");
    return;
  }
  found_ = true;
  if (event_.step == Step::kEnd) return;
  if (event_.step == Step::kKey) {
    const std::string& name = places_.back().key;
    const auto is_it = [&](const auto& one) { return one.first == name; };
    if (std::any_of(values.begin(), values.end(), is_it)) {
      allowed("comes twice");
    } else if (allowed(variable_refusal(name, name_bytes_max)) &&
               allowed(count_refusal(values.size() + 1, count_max))) {
      values.emplace_back(name, "");
    }
  } else if (is(Step::kText, "a text") && allowed(text_refusal(event_.text, value_bytes_max))) {
    values.back().second = event_.text;
  }
}

bool JsonWalk::is(Step wanted, std::string_view called) {
  static constexpr std::array<std::string_view, 8> kCalled = {
      "null",   "true or false", "a number", "a negative number", "no whole number of 64 bits",
      "a text", "an object",     "a list"};
  if (event_.step == wanted) return true;
  return allowed(fmt::format("is {}, not {}", kCalled[static_cast<size_t>(event_.step)], called));
}

bool JsonWalk::allowed(std::string why) {
  if (why.empty()) return true;
  if (error_.empty()) error_ = std::move(why);
  return false;
}

namespace {

// Takes the parser's steps in their order; false ends it.
class Steps {
 public:
  using Json = nlohmann::json;

  explicit Steps(Manifest* manifest) : manifest_(manifest) {}

  bool null() { return value({.step = Step::kNull}); }
  bool boolean(bool value_) { return value({.step = Step::kBoolean, .boolean = value_}); }
  bool number_integer(Json::number_integer_t n) {
    if (n < 0) return value({.step = Step::kNegative});
    return number_unsigned(static_cast<Json::number_unsigned_t>(n));
  }
  bool number_unsigned(Json::number_unsigned_t n) {
    return value({.step = Step::kInteger, .integer = n});
  }
  bool number_float(Json::number_float_t, const std::string&) {
    return value({.step = Step::kFraction});
  }
  bool string(std::string& text) { return value({.step = Step::kText, .text = text}); }
  bool binary(Json::binary_t&) { return value({.step = Step::kNull}); }
  bool start_object(size_t) {
    if (places_.empty() && !whole_) {
      whole_ = true;
    } else if (!told({.step = Step::kObject})) {
      return false;
    }
    places_.emplace_back();
    return true;
  }
  bool key(std::string& key) {
    places_.back().key = key;
    return told({.step = Step::kKey});
  }
  bool end_object() {
    if (!told({.step = Step::kEnd})) return false;
    places_.pop_back();
    next();
    return true;
  }
  bool start_array(size_t) {
    if (!told({.step = Step::kArray})) return false;
    places_.back().item = 0;
    return true;
  }
  bool end_array() {
    places_.back().item = -1;
    return true;
  }
  // The parser's own text may hold all of the peer's.
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) {
    return refuse(fmt::format("is no JSON from byte {} on", at));
  }

  const std::string& error() const { return error_; }

 private:
  bool value(const Event& event) {
    if (!told(event)) return false;
    next();
    return true;
  }
  void next() {
    if (!places_.empty() && places_.back().item >= 0) ++places_.back().item;
  }
  bool told(const Event& event) {
    if (places_.empty()) return refuse("is no object");
    JsonWalk walk(event, places_);
    Manifest::fields(walk, *manifest_);
    if (event.step == Step::kEnd && !walk.missing().empty()) {
      places_.back().key = walk.missing();
      return refuse("is missing");
    }
    if (event.step != Step::kEnd && !walk.found()) return refuse("is no key of a manifest");
    return walk.error().empty() || refuse(walk.error());
  }
  bool refuse(std::string_view why) {
    std::string path;
    for (const Place& place : places_) {
      if (!path.empty()) path += '.';
      path += shown(place.key);
      if (place.item >= 0) path += fmt::format("[{}]", place.item);
    }
    error_ = fmt::format("{}{}{}", path, path.empty() ? "it " : ": ", why);
    return false;
  }

  Manifest* manifest_;
  std::vector<Place> places_;
  bool whole_ = false;
  std::string error_;
};

}  // namespace
}  // namespace json

namespace {

Error wrong(std::string_view at, std::string_view why) {
  return Error(Code::kCorrupt, Scope::kSession, fmt::format("manifest: {}: {}", at, why));
}

// The place of an item that comes again, or the number of all.
template <class T>
size_t repeated(const std::vector<T>& values) {
  std::vector<T> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return values.size();
  const auto first = std::find(values.begin(), values.end(), *twice);
  return static_cast<size_t>(std::find(first + 1, values.end(), *twice) - values.begin());
}

Result<void> check_callables(std::string_view key, const std::vector<ManifestCallable>& callables) {
  for (size_t i = 0; i < callables.size(); ++i) {
    const ManifestCallable& c = callables[i];
    const std::string at = fmt::format("{}[{}]", key, i);
    if (c.kind == CallableKind::kNativeImport) {
      const Result<void> valid = model::validate(model::NativeImportDescriptor{c.module, c.symbol});
      if (!valid) return wrong(at, valid.error().message());
    } else if (c.kind != CallableKind::kPythonImport) {
      return wrong(at + ".kind",
                   fmt::format("is {}, which travels as a control", wire_name(c.kind)));
    } else if (!is_dotted(c.module)) {
      return wrong(at + ".module", "is no name of a Python module");
    } else if (!is_dotted(c.symbol)) {
      return wrong(at + ".symbol", "is no qualified name of Python");
    }
  }
  return {};
}

}  // namespace

Result<void> Manifest::check() const {
  if (level >= parent_level) {
    return wrong("level", fmt::format("is {}, its parent's is {}", level, parent_level));
  }
  if (platform.empty()) return wrong("platform", "is empty");
  if (runtime.empty()) return wrong("runtime", "is empty");
  if (const size_t i = repeated(device_ids); i < device_ids.size()) {
    return wrong(fmt::format("device_ids[{}]", i), fmt::format("is {} again", device_ids[i]));
  }
  if (const size_t i = repeated(cpus); i < cpus.size()) {
    return wrong(fmt::format("cpus[{}]", i), fmt::format("is {} again", cpus[i]));
  }
  if (!is_inside_folder(cwd)) {
    return wrong("cwd", "leaves the daemon's folder: it must be relative and without \"..\"");
  }
  if (data_profile.transport.empty()) return wrong("data_profile.transport", "is empty");
  const std::vector<Path>& paths = data_profile.paths;
  if (const size_t i = repeated(paths); i < paths.size()) {
    return wrong(fmt::format("data_profile.paths[{}]", i),
                 fmt::format("is {} again", wire_name(paths[i])));
  }
  STRATA_TRY(check_callables("dispatcher", dispatcher));
  STRATA_TRY(check_callables("inner", inner));
  if (timeouts.beat_ms >= timeouts.hold_ms || timeouts.hold_ms >= timeouts.parent_verdict_ms) {
    return wrong("timeouts.hold_ms",
                 fmt::format("is {}: it must be more than beat_ms, {}, and less than "
                             "parent_verdict_ms, {}",
                             timeouts.hold_ms, timeouts.beat_ms, timeouts.parent_verdict_ms));
  }
  return {};
}

Result<std::string> encode_manifest(const Manifest& manifest) {
  const auto invalid = [](std::string text) {
    return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
  };
  std::string out;
  json::JsonWriter writer(&out);
  writer.value(manifest);
  if (!writer.error().empty()) return invalid("manifest: " + writer.error());
  if (const Result<void> checked = manifest.check(); !checked) {
    return invalid(checked.error().message());
  }
  if (out.size() > kManifestBytesMax) {
    return invalid(
        fmt::format("manifest: it has {} bytes, at most {}", out.size(), kManifestBytesMax));
  }
  return out;
}

Result<Manifest> decode_manifest(std::string_view text) {
  const auto corrupt = [](std::string_view why) {
    return Error(Code::kCorrupt, Scope::kSession, fmt::format("manifest: {}", why));
  };
  if (text.size() > kManifestBytesMax) {
    return corrupt(fmt::format("it has {} bytes, at most {}", text.size(), kManifestBytesMax));
  }
  // The parser takes a zero byte for the end.
  if (text.find('\0') != std::string_view::npos) return corrupt("it has a zero byte");
  Manifest out;
  out.data_profile.paths.clear();
  json::Steps steps(&out);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &steps)) return corrupt(steps.error());
  STRATA_TRY(out.check());
  return out;
}

}  // namespace strata::wire
