#include "os/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "base/sha256.h"
#include "base/text.h"

namespace strata::os {
namespace {

// Whether [address, +length) lies in a loaded segment of the module that has all of `flags`.
bool in_segment(const dl_phdr_info& module, uintptr_t address, size_t length, ElfW(Word) flags) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & flags) != flags) continue;
    const uintptr_t start = module.dlpi_addr + segment.p_vaddr;
    if (address >= start && length <= segment.p_memsz &&
        address - start <= segment.p_memsz - length) {
      return true;
    }
  }
  return false;
}

// The build id among one segment's notes; empty where there is none.
std::span<const std::byte> find_in_notes(std::span<const std::byte> notes, size_t align) {
  const auto round_up = [align](size_t n) { return (n + align - 1) / align * align; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t name_at = sizeof note;
    const size_t value_at = name_at + round_up(note.n_namesz);
    const size_t end = value_at + round_up(note.n_descsz);
    if (value_at > notes.size() || note.n_descsz > notes.size() - value_at) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name_at, "GNU", 4) == 0) {
      return notes.subspan(value_at, note.n_descsz);
    }
    notes = notes.subspan(std::min(end, notes.size()));
  }
  return {};
}

std::span<const std::byte> linked_build_id_of(const dl_phdr_info& module) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const uintptr_t start = module.dlpi_addr + segment.p_vaddr;
    if (!in_segment(module, start, segment.p_memsz, PF_R)) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(start);
    const std::span<const std::byte> id =
        find_in_notes({bytes, segment.p_memsz}, segment.p_align == 8 ? 8 : 4);
    if (!id.empty() && id.size() <= kBuildIdBytesMax) return id;
  }
  return {};
}

// Some linkers write no build id unless asked: the hash of the code stands for it then. Code is
// position-independent or at its linked place, so the bytes are the same in every process.
std::vector<std::byte> build_id_of(const dl_phdr_info& module) {
  const std::span<const std::byte> linked = linked_build_id_of(module);
  if (!linked.empty()) return {linked.begin(), linked.end()};
  std::vector<std::byte> digests;
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_R | PF_X)) != (PF_R | PF_X)) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(module.dlpi_addr + segment.p_vaddr);
    const base::Sha256 digest = base::sha256({bytes, segment.p_filesz});
    digests.insert(digests.end(), digest.begin(), digest.end());
  }
  if (digests.empty()) return {};
  const base::Sha256 all = base::sha256(digests);
  return {all.begin(), all.end()};
}

struct ByAddress {
  uintptr_t address;
  bool found = false;
  CodeAddress out = {};
};

int look_by_address(dl_phdr_info* module, size_t, void* data) {
  auto& search = *static_cast<ByAddress*>(data);
  if (!in_segment(*module, search.address, 1, PF_X)) return 0;
  search.found = true;
  search.out.build_id = build_id_of(*module);
  search.out.load_base = module->dlpi_addr;
  search.out.offset = search.address - module->dlpi_addr;
  search.out.module = module->dlpi_name != nullptr ? module->dlpi_name : "";
  return 1;
}

struct ByBuildId {
  std::span<const std::byte> build_id;
  uint64_t offset;
  bool module_found = false;
  const void* address = nullptr;
};

int look_by_build_id(dl_phdr_info* module, size_t, void* data) {
  auto& search = *static_cast<ByBuildId*>(data);
  const std::vector<std::byte> id = build_id_of(*module);
  if (id.empty() ||
      !std::equal(id.begin(), id.end(), search.build_id.begin(), search.build_id.end())) {
    return 0;
  }
  search.module_found = true;
  const uintptr_t address = module->dlpi_addr + search.offset;
  if (!in_segment(*module, address, 1, PF_X)) return 0;
  search.address = reinterpret_cast<const void*>(address);
  return 1;
}

}  // namespace

Result<CodeAddress> code_address_of(const void* address) {
  ByAddress search{.address = reinterpret_cast<uintptr_t>(address)};
  ::dl_iterate_phdr(look_by_address, &search);
  if (!search.found) {
    return Error(Code::kNotFound, Scope::kCall,
                 fmt::format("{} is not code of a loaded module", address));
  }
  if (search.out.build_id.empty()) {
    return Error(Code::kUnsupported, Scope::kCall,
                 fmt::format("the module '{}' has no build id and no readable code: link it with "
                             "-Wl,--build-id",
                             search.out.module));
  }
  return std::move(search.out);
}

Result<const void*> code_at(std::span<const std::byte> build_id, uint64_t offset) {
  ByBuildId search{.build_id = build_id, .offset = offset};
  ::dl_iterate_phdr(look_by_build_id, &search);
  if (!search.module_found) {
    return Error(Code::kNotFound, Scope::kCall,
                 fmt::format("no module with build id {} is loaded here", base::hex(build_id)));
  }
  if (search.address == nullptr) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("offset {:#x} is not in the code of the module with build id {}",
                             offset, base::hex(build_id)));
  }
  return search.address;
}

}  // namespace strata::os
