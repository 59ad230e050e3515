// KeyRing: the one or two cluster keys of a process, and the files that they stand in. A key is the
// right to run code as the daemon's user, so its bytes are wiped where they were and no text ever
// holds them; the id is public. The first key is the one that this side shows when it connects; who
// accepts takes either, so that keys can be changed one host at a time.
//
// A key file has mode 0600, belongs to who reads it, and holds one key or two:
//   strata key 1
//   id 0f3a97c2d4e5b681
//   secret (64 hexadecimal digits)
// Values; any thread. The functions on files block like any file.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::transport {

inline constexpr size_t kKeysMax = 2;
inline constexpr size_t kKeyIdBytes = 16;  // characters
inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kKeyFileBytesMax = 1024;

// Overwrites in a way that no compiler leaves out.
void wipe(std::span<std::byte> bytes);

// 32 bytes that are wiped with their owner.
class Secret {
 public:
  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes_); }
  std::span<std::byte, kSecretBytes> bytes() { return bytes_; }
  std::span<const std::byte, kSecretBytes> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kSecretBytes> bytes_{};
};

// A key file's text; wiped with its owner, as is what it outgrows.
class SecretText {
 public:
  SecretText() = default;
  explicit SecretText(size_t bytes) : text_(bytes, '\0') {}
  SecretText(SecretText&& other) noexcept { text_.swap(other.text_); }
  SecretText& operator=(SecretText&&) = delete;
  ~SecretText() { wipe(std::as_writable_bytes(std::span(text_))); }
  void append(std::string_view more);
  void truncate(size_t bytes);
  std::string_view view() const { return {text_.data(), text_.size()}; }
  std::span<char> chars() { return text_; }

 private:
  std::vector<char> text_;
};

struct ClusterKey {
  std::string id;
  Secret secret;
};

class KeyRing {
 public:
  // Random, with a random id.
  static Result<ClusterKey> new_key();
  static Result<KeyRing> of(std::vector<ClusterKey> keys);
  // One key file or more, at most kKeysMax keys in all. Refused where someone else could have read
  // or written one.
  static Result<KeyRing> read_files(const std::vector<std::string>& files);
  // A descriptor that was inherited, from its beginning.
  static Result<KeyRing> read_descriptor(int fd);
  // `where` names it in texts; nothing of the text itself is told.
  static Result<KeyRing> parse(std::string_view text, std::string_view where);

  SecretText encode() const;
  std::span<const ClusterKey> keys() const { return keys_; }
  const ClusterKey* find(std::string_view id) const;
  // "0f3a97c2d4e5b681" or "0f3a97c2d4e5b681 and 5c0d...".
  std::string ids() const;

 private:
  explicit KeyRing(std::vector<ClusterKey> keys) : keys_(std::move(keys)) {}
  std::vector<ClusterKey> keys_;
};

// Makes a new file with a new key and gives the id; a file that is there is never touched.
Result<std::string> create_key_file(const std::string& file);

// HKDF-SHA-256 of the key for that role: who holds a key for one role has nothing for another.
Result<Secret> derive(const Secret& key, std::string_view role);

}  // namespace strata::transport
