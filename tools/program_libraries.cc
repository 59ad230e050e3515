#include "tools/program_libraries.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "os/fd.h"
#include "os/system_error.h"

namespace strata::tools {
namespace {

// A file's bytes while it lives.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path) {
    const os::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
      if (errno == ENOENT) return Error(Code::kNotFound, Scope::kCall, path + ": no such file");
      return os::system_error(path, errno);
    }
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return os::system_error(path, errno);
    if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(sizeof(Elf64_Ehdr))) {
      return Error(Code::kUnsupported, Scope::kCall, path + ": not an ELF program");
    }
    const auto size = static_cast<size_t>(info.st_size);
    void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at == MAP_FAILED) return os::system_error(path, errno);
    return MappedFile({static_cast<const std::byte*>(at), size});
  }
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// What one ELF file says to the loader.
struct Object {
  std::vector<std::string> needed;
  std::string rpath, runpath;
  bool has_build_id = false;
};

// The tables of one file; every offset in them is the file's word, so every read is checked.
class Reader {
 public:
  Reader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  Result<Object> read() {
    STRATA_ASSIGN(const auto header, at<Elf64_Ehdr>(0));
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return refuse("not an ELF program");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != EM_X86_64) {
      return refuse("a program of another machine");
    }
    for (size_t i = 0; i < header.e_phnum; ++i) {
      STRATA_ASSIGN(const auto segment, at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
      segments_.push_back(segment);
    }
    Object out;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_NOTE) STRATA_TRY(read_notes(segment, &out));
      if (segment.p_type == PT_DYNAMIC) STRATA_TRY(read_dynamic(segment, &out));
    }
    return out;
  }

 private:
  Error refuse(const char* why) const {
    return Error(Code::kUnsupported, Scope::kCall, fmt::format("{}: {}", path_, why));
  }
  Error corrupt() const {
    return Error(Code::kCorrupt, Scope::kCall, path_ + ": its tables lead out of the file");
  }
  template <class T>
  Result<T> at(uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return corrupt();
    T out;
    std::memcpy(&out, bytes_.data() + offset, sizeof out);
    return out;
  }
  Result<uint64_t> offset_of(uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address - segment.p_vaddr < segment.p_filesz) {
        return segment.p_offset + (address - segment.p_vaddr);
      }
    }
    return corrupt();
  }
  Result<std::string> string_at(uint64_t offset) const {
    if (offset >= bytes_.size()) return corrupt();
    const auto* const text = reinterpret_cast<const char*>(bytes_.data() + offset);
    const size_t length = ::strnlen(text, bytes_.size() - offset);
    if (length == bytes_.size() - offset) return corrupt();
    return std::string(text, length);
  }

  Result<void> read_notes(const Elf64_Phdr& segment, Object* out) const {
    uint64_t offset = segment.p_offset;
    const uint64_t end = segment.p_offset + segment.p_filesz;
    while (end >= sizeof(Elf64_Nhdr) && offset <= end - sizeof(Elf64_Nhdr)) {
      STRATA_ASSIGN(const auto note, at<Elf64_Nhdr>(offset));
      out->has_build_id |= note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4;
      const auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
      offset += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    }
    return {};
  }

  Result<void> read_dynamic(const Elf64_Phdr& segment, Object* out) const {
    std::vector<uint64_t> needed;
    std::optional<uint64_t> rpath, runpath, strings;
    for (uint64_t i = 0; i < segment.p_filesz / sizeof(Elf64_Dyn); ++i) {
      STRATA_ASSIGN(const auto entry, at<Elf64_Dyn>(segment.p_offset + i * sizeof(Elf64_Dyn)));
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_RPATH) rpath = entry.d_un.d_val;
      if (entry.d_tag == DT_RUNPATH) runpath = entry.d_un.d_val;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
    }
    if (!strings.has_value()) return {};
    STRATA_ASSIGN(const uint64_t table, offset_of(*strings));
    for (const uint64_t place : needed) {
      STRATA_ASSIGN(std::string name, string_at(table + place));
      out->needed.push_back(std::move(name));
    }
    if (rpath.has_value()) {
      STRATA_ASSIGN(out->rpath, string_at(table + *rpath));
    }
    if (runpath.has_value()) {
      STRATA_ASSIGN(out->runpath, string_at(table + *runpath));
    }
    return {};
  }

  const std::string& path_;
  const std::span<const std::byte> bytes_;
  std::vector<Elf64_Phdr> segments_;
};

Result<Object> read_object(const std::string& path) {
  STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
  return Reader(path, file.bytes()).read();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// A list of folders with $ORIGIN filled in.
void add_folders(std::string_view list, const std::string& origin, std::vector<std::string>* out) {
  while (!list.empty()) {
    const size_t end = list.find(':');
    std::string folder(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    for (const std::string_view mark : {"${ORIGIN}", "$ORIGIN"}) {
      for (size_t at; (at = folder.find(mark)) != std::string::npos;) {
        folder.replace(at, mark.size(), origin);
      }
    }
    if (!folder.empty()) out->push_back(std::move(folder));
  }
}

// The folders of /etc/ld.so.conf and of what it includes.
void add_configured(const std::string& file, int depth, std::vector<std::string>* out) {
  constexpr int kDepthMax = 8;
  std::ifstream in(file);
  std::string line;
  while (depth < kDepthMax && std::getline(in, line)) {
    if (const size_t hash = line.find('#'); hash != std::string::npos) line.erase(hash);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (line.starts_with("include ")) {
      glob_t found{};
      if (::glob(line.substr(8).c_str(), 0, nullptr, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; ++i) {
          add_configured(found.gl_pathv[i], depth + 1, out);
        }
      }
      ::globfree(&found);
    } else if (line.starts_with('/')) {
      out->push_back(line);
    }
  }
}

std::vector<std::string> system_folders() {
  std::vector<std::string> out;
  add_configured("/etc/ld.so.conf", 0, &out);
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
                             "/usr/lib64", "/lib", "/usr/lib"}) {
    out.emplace_back(folder);
  }
  return out;
}

// As the loader searches: the object's own folders, those of the environment, the system's.
std::string find_library(const std::string& name, const Object& by, const std::string& by_path,
                         const std::string& program_rpath, const std::string& program_folder,
                         const std::vector<std::string>& system) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), R_OK) == 0 ? name : "";
  std::vector<std::string> folders;
  if (by.runpath.empty()) {
    add_folders(by.rpath, folder_of(by_path), &folders);
    add_folders(program_rpath, program_folder, &folders);
  }
  const char* const environment = std::getenv("LD_LIBRARY_PATH");
  if (environment != nullptr) add_folders(environment, program_folder, &folders);
  add_folders(by.runpath, folder_of(by_path), &folders);
  folders.insert(folders.end(), system.begin(), system.end());
  for (const std::string& folder : folders) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace

Result<ProgramLibraries> read_program_libraries(const std::string& path) {
  STRATA_ASSIGN(const Object program, read_object(path));
  ProgramLibraries out;
  out.has_build_id = program.has_build_id;
  const std::string program_rpath = program.runpath.empty() ? program.rpath : "";
  const std::vector<std::string> system = system_folders();
  std::set<std::string> seen;
  const auto add = [&](const Object& by, const std::string& by_name, const std::string& by_path) {
    for (const std::string& name : by.needed) {
      if (out.libraries.size() >= kLibrariesMax || !seen.insert(name).second) continue;
      out.libraries.push_back(
          {name, find_library(name, by, by_path, program_rpath, folder_of(path), system), by_name});
    }
  };
  add(program, path.substr(path.rfind('/') + 1), path);
  for (size_t i = 0; i < out.libraries.size(); ++i) {
    const Library library = out.libraries[i];  // a copy: the vector grows
    if (library.path.empty()) continue;
    // A library that cannot be read has no libraries that are known.
    if (auto object = read_object(library.path); object.ok()) {
      add(*object, library.name, library.path);
    }
  }
  return out;
}

}  // namespace strata::tools
