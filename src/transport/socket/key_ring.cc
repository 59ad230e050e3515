#include "transport/socket/key_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/result.h"
#include "base/text.h"
#include "transport/socket/socket_fd.h"

namespace strata::transport {
namespace {

constexpr std::string_view kHead = "strata key ";
constexpr std::string_view kFirstLine = "strata key 1";

Error refused(std::string_view where, std::string_view why) {
  return Error(Code::kInvalidArgument, Scope::kCall, fmt::format("key file {}: {}", where, why));
}

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return value_of(c) >= 0; });
}

// Takes the next line, without its end.
std::string_view take_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

Result<ClusterKey> parse_one(std::string_view* text, std::string_view where) {
  const std::string_view first = take_line(text);
  if (first != kFirstLine) {
    return refused(where, first.substr(0, kHead.size()) == kHead
                              ? "it is of another version than 1: made by a newer strata?"
                              : "it does not begin with the line 'strata key 1'");
  }
  const std::string_view id = take_line(text);
  const std::string_view secret = take_line(text);
  if (id.substr(0, 3) != "id " || id.size() != 3 + kKeyIdBytes || !is_hex(id.substr(3))) {
    return refused(where, "its second line is not 'id' and 16 hexadecimal digits");
  }
  if (secret.substr(0, 7) != "secret " || secret.size() != 7 + 2 * kSecretBytes ||
      !is_hex(secret.substr(7))) {
    return refused(where, "its third line is not 'secret' and 64 hexadecimal digits");
  }
  ClusterKey key;
  key.id = id.substr(3);
  for (size_t i = 0; i < kSecretBytes; ++i) {
    key.secret.bytes()[i] =
        static_cast<std::byte>(value_of(secret[7 + 2 * i]) << 4 | value_of(secret[8 + 2 * i]));
  }
  return key;
}

Result<SecretText> read_text(int fd, std::string_view where) {
  SecretText text(kKeyFileBytesMax + 1);
  size_t filled = 0;
  while (filled < text.chars().size()) {
    const ssize_t n = ::pread(fd, text.chars().data() + filled, text.chars().size() - filled,
                              static_cast<off_t>(filled));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(fmt::format("read key file {}", where), errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  if (filled > kKeyFileBytesMax) return refused(where, "it is longer than a file of two keys");
  text.truncate(filled);
  return text;
}

Result<SecretText> read_checked(const std::string& file) {
  // Not blocked by a pipe that has the name.
  const SocketFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) {
    const int error = errno;
    Error out = socket_error(fmt::format("open key file {}", file), error);
    return error == ENOENT ? Error(Code::kNotFound, Scope::kCall,
                                   out.message() + ": `strata key new FILE` makes one")
                           : out;
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return socket_error(fmt::format("look at {}", file), errno);
  if (!S_ISREG(info.st_mode)) return refused(file, "it is no file");
  if (info.st_uid != ::geteuid()) {
    return refused(file, fmt::format("it belongs to user {}, and this is user {}: only its owner "
                                     "may use it",
                                     info.st_uid, ::geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    return refused(file, fmt::format("its mode is {:04o}, so others may have read it: make a new "
                                     "key, or `chmod 600` where they have not",
                                     info.st_mode & 07777));
  }
  return read_text(fd.get(), file);
}

Result<void> write_all(int fd, std::string_view text, const std::string& what) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(what, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(fd) != 0) return socket_error(what, errno);
  return {};
}

}  // namespace

void wipe(std::span<std::byte> bytes) {
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

void SecretText::append(std::string_view more) {
  std::vector<char> next;
  next.reserve(text_.size() + more.size());
  next.insert(next.end(), text_.begin(), text_.end());
  next.insert(next.end(), more.begin(), more.end());
  wipe(std::as_writable_bytes(std::span(text_)));
  text_.swap(next);
}

void SecretText::truncate(size_t bytes) {
  if (bytes >= text_.size()) return;
  wipe(std::as_writable_bytes(std::span(text_)).subspan(bytes));
  text_.resize(bytes);
}

Result<ClusterKey> KeyRing::new_key() {
  ClusterKey key;
  std::array<std::byte, kKeyIdBytes / 2> id;
  if (RAND_priv_bytes(reinterpret_cast<unsigned char*>(key.secret.bytes().data()), kSecretBytes) !=
          1 ||
      RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), id.size()) != 1) {
    return Error(Code::kSystem, Scope::kProcess, "no random bytes for a key");
  }
  key.id = base::hex(id);
  return key;
}

Result<KeyRing> KeyRing::of(std::vector<ClusterKey> keys) {
  if (keys.empty() || keys.size() > kKeysMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("{} keys: one, or two while one replaces the other", keys.size()));
  }
  if (keys.size() == 2 && keys[0].id == keys[1].id) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("the key {} is given twice", keys[0].id));
  }
  return KeyRing(std::move(keys));
}

Result<KeyRing> KeyRing::parse(std::string_view text, std::string_view where) {
  std::vector<ClusterKey> keys;
  do {
    if (keys.size() == kKeysMax) return refused(where, "it has more than two keys");
    STRATA_ASSIGN(ClusterKey key, parse_one(&text, where));
    keys.push_back(std::move(key));
  } while (!text.empty());
  return of(std::move(keys));
}

Result<KeyRing> KeyRing::read_files(const std::vector<std::string>& files) {
  std::vector<ClusterKey> keys;
  for (const std::string& file : files) {
    STRATA_ASSIGN(const SecretText text, read_checked(file));
    STRATA_ASSIGN(const KeyRing ring, parse(text.view(), file));
    keys.insert(keys.end(), ring.keys_.begin(), ring.keys_.end());
  }
  return of(std::move(keys));
}

Result<KeyRing> KeyRing::read_descriptor(int fd) {
  constexpr std::string_view kWhere = "by descriptor";
  STRATA_ASSIGN(const SecretText text, read_text(fd, kWhere));
  return parse(text.view(), kWhere);
}

SecretText KeyRing::encode() const {
  SecretText out;
  for (const ClusterKey& key : keys_) {
    constexpr char kDigits[] = "0123456789abcdef";
    SecretText digits(2 * kSecretBytes);
    for (size_t i = 0; i < kSecretBytes; ++i) {
      const auto byte = static_cast<unsigned>(key.secret.bytes()[i]);
      digits.chars()[2 * i] = kDigits[byte >> 4];
      digits.chars()[2 * i + 1] = kDigits[byte & 15];
    }
    out.append(kFirstLine);
    out.append("\nid ");
    out.append(key.id);
    out.append("\nsecret ");
    out.append(digits.view());
    out.append("\n");
  }
  return out;
}

const ClusterKey* KeyRing::find(std::string_view id) const {
  for (const ClusterKey& key : keys_) {
    if (key.id == id) return &key;
  }
  return nullptr;
}

std::string KeyRing::ids() const {
  return keys_.size() == 1 ? keys_[0].id : fmt::format("{} and {}", keys_[0].id, keys_[1].id);
}

Result<std::string> create_key_file(const std::string& file) {
  STRATA_ASSIGN(ClusterKey key, KeyRing::new_key());
  std::string id = key.id;
  std::vector<ClusterKey> keys;
  keys.push_back(std::move(key));
  STRATA_ASSIGN(const KeyRing ring, KeyRing::of(std::move(keys)));
  const SecretText text = ring.encode();
  const std::string what = fmt::format("make key file {}", file);
  const SocketFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    const int error = errno;
    Error out = socket_error(what, error);
    return error == EEXIST ? Error(Code::kInvalidArgument, Scope::kCall,
                                   out.message() +
                                       ": a key that is in use is not overwritten; choose another "
                                       "name")
                           : out;
  }
  // A umask takes bits away from the mode, never adds any, and would leave a file of no use.
  Result<void> written = ::fchmod(fd.get(), 0600) == 0 ? write_all(fd.get(), text.view(), what)
                                                       : Result<void>(socket_error(what, errno));
  if (written) return id;
  ::unlink(file.c_str());
  return std::move(written).error();
}

Result<Secret> derive(const Secret& key, std::string_view role) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr), &EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr, &EVP_KDF_CTX_free);
  // Fixed for ever: both ends of a connection must come to the same bytes.
  std::string salt = "strata key mode 1";
  std::string info(role);
  Secret out;
  Secret copy = key;
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>("SHA256"), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, copy.bytes().data(), kSecretBytes),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  if (!context ||
      EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(out.bytes().data()),
                     kSecretBytes, params) != 1) {
    return Error(Code::kSystem, Scope::kProcess, "OpenSSL has no HKDF with SHA-256 here");
  }
  return out;
}

}  // namespace strata::transport
