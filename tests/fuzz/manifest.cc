// The target of the manifest. JSON has many texts for one value: what decodes must encode, and that
// text must come back as itself.
#include "wire/manifest.h"

#include <fmt/format.h>

#include "tests/fuzz/oracle.h"
#include "tests/wire/messages.h"

namespace strata::fuzz {
namespace {

using namespace std::string_view_literals;

void test_manifest(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  count_allocations();
  const Result<wire::Manifest> got = wire::decode_manifest(text);
  // What the parser says of a text that is no JSON holds it several times, a control byte in eight
  // characters.
  check_allocations(4 * input.size());
  if (!got.ok()) return check_error(got.error());
  const Result<std::string> own = wire::encode_manifest(*got);
  if (!own.ok()) found("a manifest that does not encode:", own.error().message().c_str());
  const Result<wire::Manifest> again = wire::decode_manifest(*own);
  if (!again.ok()) found("a manifest's own text is refused:", again.error().message().c_str());
  if (wire::encode_manifest(*again).value() != *own) found("a manifest with two texts");
}

// The fourth `io` of a manifest: writes it as JSON, the field that it aims at as something else.
class JsonMutator {
 public:
  JsonMutator(Changes* changes, size_t aim, std::string* out)
      : changes_(changes), aim_(aim), out_(out) {}

  template <class T>
  void value(const T& of) {
    *out_ += '{';
    first_ = true;
    T::fields(*this, of);
    if (hit()) {
      key(pick({"", "colour", "level", "a.b", "\\u0000", "\\ud83d\\ude00", "\\ud800"}));
      *out_ += strange();
    }
    *out_ += '}';
    first_ = false;
  }
  template <class N>
  void number(std::string_view name, N value, uint64_t min, uint64_t max) {
    field(
        name, [&] { return numeral(static_cast<uint64_t>(value)); },
        [&] { return near(min, max); });
  }
  void boolean(std::string_view name, bool value) {
    field(
        name, [&] { return std::string(value ? "true" : "false"); },
        [&] { return std::string(value ? "false" : "true"); });
  }
  template <class E>
  void choice(std::string_view name, E value) {
    field(
        name, [&] { return quoted(wire::wire_name(value)); }, [&] { return any_name<E>(); });
  }
  void text(std::string_view name, std::string_view value, uint32_t bytes_max) {
    field(
        name, [&] { return quoted(value); },
        [&] { return quoted(changes_->text(value, bytes_max)); });
  }
  template <class N>
  void numbers(std::string_view name, const std::vector<N>& values, size_t count_max, uint64_t min,
               uint64_t max) {
    list(
        name, values, count_max, [&](N n) { return numeral(static_cast<uint64_t>(n)); },
        [&] { return near(min, max); });
  }
  template <class E>
  void choices(std::string_view name, const std::vector<E>& values, size_t count_max) {
    list(
        name, values, count_max, [&](E e) { return quoted(wire::wire_name(e)); },
        [&] { return any_name<E>(); });
  }
  void names(std::string_view name, const std::vector<std::pair<std::string, std::string>>& values,
             size_t count_max, uint32_t, uint32_t value_bytes_max) {
    key(name);
    if (hit()) {
      *out_ += strange();
      return;
    }
    *out_ += '{';
    first_ = true;
    for (const auto& [variable, value] : values) {
      text(hit() ? changes_->text(variable, 255) : variable, value, value_bytes_max);
    }
    if (hit()) {
      for (size_t i = 0; i < count_max; ++i) text(fmt::format("V{}", i), "", 1);
    }
    *out_ += '}';
    first_ = false;
  }
  template <class T>
  void object(std::string_view name, const T& of) {
    key(name);
    if (hit()) {
      *out_ += strange();
    } else {
      value(of);
    }
  }
  template <class T>
  void objects(std::string_view name, const std::vector<T>& values, size_t count_max) {
    key(name);
    const bool here = hit();
    if (here && changes_->prng().chance(1, 2)) {
      *out_ += strange();
      return;
    }
    *out_ += '[';
    bool first = true;
    for (const size_t i : here ? changes_->items(values.size(), count_max) : plain(values.size())) {
      if (!std::exchange(first, false)) *out_ += ',';
      value(values[i]);
    }
    *out_ += ']';
    first_ = false;
  }

  size_t fields() const { return field_; }

 private:
  bool hit() { return field_++ == aim_; }
  std::string pick(std::initializer_list<std::string_view> of) {
    return std::string(*(of.begin() + changes_->prng().below(of.size())));
  }
  static std::vector<size_t> plain(size_t count) {
    std::vector<size_t> out;
    for (size_t i = 0; i < count; ++i) out.push_back(i);
    return out;
  }
  static std::string numeral(uint64_t n) { return fmt::format("{}", n); }
  std::string near(uint64_t min, uint64_t max) {
    return pick({numeral(min), numeral(min - 1), numeral(max), numeral(max + 1),
                 numeral(changes_->number(min, 64)), "-1", "-0", "0", "1.5", "1e3", "1E-400",
                 "18446744073709551616", "-9223372036854775809", "00", "0x1", "1e", "-", "+1"});
  }
  std::string strange() {
    return pick({"null",
                 "true",
                 "false",
                 "0",
                 "-7",
                 "1.25",
                 "1e999",
                 "\"\"",
                 "\"\\u00e9\\n\"",
                 "[]",
                 "{}",
                 "[[]]",
                 "[{}]",
                 "{\"a\":{\"b\":[{}]}}",
                 "nul",
                 "tru",
                 "[1",
                 "{\"a\"",
                 "\"",
                 "[1,]",
                 "/**/1",
                 "\"\\ud800\"",
                 "\"\\udc00\"",
                 "\"\\ud800\\u0041\"",
                 "\"\\x\"",
                 "\"\\u12\"",
                 "\"\x01\"",
                 "\"\x7f\"",
                 "\"\xc0\xaf\"",
                 "\"\xf4\x90\x80\x80\"",
                 "\"\\b\\f\\r\\t\\/\\\\\\\"\""});
  }
  template <class E>
  std::string any_name() {
    std::vector<std::string> known;
    wire::for_each_name<E>([&](E, std::string_view called) { known.push_back(quoted(called)); });
    known.push_back("\"?\"");
    return known[changes_->prng().below(known.size())];
  }
  // A text as JSON: plain, or with each character that could be one as an escape.
  std::string quoted(std::string_view text) {
    const bool escape = changes_->prng().chance(1, 64);
    std::string out = "\"";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || c == '"' || c == '\\' || (escape && byte < 0x80)) {
        out += fmt::format("\\u{:04x}", byte);
      } else {
        out += c;
      }
    }
    return out + '"';
  }
  void key(std::string_view name) {
    if (!std::exchange(first_, false)) *out_ += ',';
    *out_ += quoted(name);
    *out_ += ':';
    if (changes_->prng().chance(1, 256)) *out_ += pick({" ", "\n", "\t\r", "\v", ":"});
  }
  // Leaves it out, gives it twice, or another value.
  template <class Plain, class Other>
  void field(std::string_view name, Plain&& plain_value, Other&& other) {
    if (!hit()) {
      key(name);
      *out_ += plain_value();
      return;
    }
    const uint64_t way = changes_->prng().below(6);
    if (way == 0) return;
    key(name);
    *out_ += way == 1 ? plain_value() : way == 2 ? strange() : other();
    if (way != 1) return;
    key(name);
    *out_ += plain_value();
  }
  template <class T, class Item, class Other>
  void list(std::string_view name, const std::vector<T>& values, size_t count_max, Item&& item,
            Other&& other) {
    key(name);
    const bool here = hit();
    const uint64_t way = here ? changes_->prng().below(4) : 3;
    if (way == 0) {
      *out_ += strange();
      return;
    }
    *out_ += '[';
    bool first = true;
    const auto next = [&](const std::string& what) {
      if (!std::exchange(first, false)) *out_ += ',';
      *out_ += what;
    };
    for (const size_t i :
         way == 1 ? changes_->items(values.size(), count_max) : plain(values.size())) {
      next(hit() ? (changes_->prng().chance(1, 3) ? strange() : other()) : item(values[i]));
    }
    if (here && way == 2 && changes_->prng().chance(1, 4)) {
      for (size_t i = 0; i <= std::min<size_t>(count_max, 1100); ++i) next(numeral(i));
    }
    *out_ += ']';
  }

  Changes* changes_;
  size_t aim_;
  std::string* out_;
  bool first_ = true;
  size_t field_ = 0;
};

size_t mutate_manifest(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  Changes changes(seed);
  base::Prng& prng = changes.prng();
  if (prng.chance(1, 4)) return mutate_bytes(input, size, size_max);
  const std::string_view text(reinterpret_cast<const char*>(input), size);
  const Result<wire::Manifest> got = wire::decode_manifest(text);
  const wire::Manifest from = got.ok() ? *got : wire::sample::manifest();
  std::string out;
  JsonMutator plain(&changes, Mutator::kNone, &out);
  plain.value(from);
  out.clear();
  JsonMutator mutator(&changes, prng.below(plain.fields()), &out);
  mutator.value(from);
  if (prng.chance(1, 32)) out += changes.text("", 8);
  if (prng.chance(1, 32)) out.resize(prng.below(out.size() + 1));
  if (prng.chance(1, 64)) out.insert(0, "\xef\xbb\xbf"sv);
  const auto* const begin = reinterpret_cast<const std::byte*>(out.data());
  return put_over(input, size_max, Bytes(begin, begin + out.size()));
}

std::vector<Bytes> manifest_seeds() {
  const std::string a = wire::encode_manifest(wire::sample::manifest()).value();
  const std::string b = wire::encode_manifest({}).value();
  return {wire::sample::bytes(a), wire::sample::bytes(b)};
}

}  // namespace

STRATA_FUZZ_TARGET(manifest, test_manifest, mutate_manifest, manifest_seeds);

}  // namespace strata::fuzz
