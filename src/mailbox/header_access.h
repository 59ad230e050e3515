// Reading and writing the header of a region or hub over a memory policy: word by word, the magic
// last, so that a header is whole or not there. Before the attach, or in it; one thread.
#pragma once

#include <cstring>

#include "mailbox/layout.h"

namespace strata::mailbox {

struct HeaderWords {
  uint64_t word[sizeof(HeaderLine) / sizeof(uint64_t)];
};
static_assert(sizeof(HeaderWords) == sizeof(HeaderLine));

template <class Memory>
void write_header(const Memory& memory, HeaderLine* to, const HeaderLine& header) {
  HeaderWords words;
  std::memcpy(&words, &header, sizeof words);
  uint64_t* const out = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 1; i < std::size(words.word); ++i) memory.store_relaxed(out + i, words.word[i]);
  memory.store_release(out, words.word[0]);
}

template <class Memory>
HeaderLine read_header(const Memory& memory, const HeaderLine* from) {
  HeaderWords words;
  const uint64_t* const in = reinterpret_cast<const uint64_t*>(from);
  words.word[0] = memory.load_acquire(in);
  for (size_t i = 1; i < std::size(words.word); ++i) words.word[i] = memory.load_relaxed(in + i);
  HeaderLine header;
  std::memcpy(&header, &words, sizeof header);
  return header;
}

}  // namespace strata::mailbox
