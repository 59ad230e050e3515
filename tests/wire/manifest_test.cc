// The manifest: there and back, its golden text, and what must be refused, each with its key's
// path.
#include "wire/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "messages.h"

namespace strata::wire {
namespace {

constexpr std::string_view kGolden =
    R"({"session_id":6797357317455417463,"parent_path":"L5/2","parent_level":5,"level":4,)"
    R"("worker_id":7,"platform":"cpu","runtime":"tensormap_and_ringbuffer",)"
    R"("build":"strata 0.1.0","device_ids":[0,2],"sub_workers":3,"cpus":[4,5,6],)"
    R"("env":{"OMP_NUM_THREADS":"1","GREETING":"say \"hé\"\u000a"},"cwd":"runs/a",)"
    R"("limits":{"slots":16384,"depth":8,"buffers":65536,"callables":4096,)"
    R"("heap_bytes":68719476736,"huge_pages":"NONE","reserve_memory":false,)"
    R"("payload_bytes_max":16777216},)"
    R"("data_profile":{"transport":"tcp","paths":["MAPPED","SOCKET","RELAYED"]},)"
    R"("early_controls":2,"features":1,)"
    R"("dispatcher":[{"kind":"NATIVE_IMPORT","module":"libtile.so","symbol":"gemm"},)"
    R"({"kind":"PYTHON_IMPORT","module":"pkg.tiles","symbol":"Tile.gemm"}],)"
    R"("inner":[{"kind":"NATIVE_IMPORT","module":"libtile.so","symbol":"trsm"}],)"
    R"("timeouts":{"child_ready_ms":30000,"building_turn_ms":30000,"control_ms":30000,)"
    R"("close_ms":60000,"exit_ms":5000,"deadline_grace_ms":1000,"stall_report_ms":30000,)"
    R"("start_ms":30000,"handshake_ms":5000,"transfer_ms":10000,"beat_ms":250,"hold_ms":3000,)"
    R"("parent_verdict_ms":5000,"runner_verdict_ms":30000},"log_level":"WARNING"})";

// Why a text is refused; empty where it is taken.
std::string refusal(std::string_view text) {
  const Result<Manifest> got = decode_manifest(text);
  if (got.ok()) return "";
  EXPECT_EQ(got.error().code(), Code::kCorrupt);
  EXPECT_EQ(got.error().scope(), Scope::kSession);
  return got.error().message();
}

// The golden text with one part changed.
std::string with(std::string_view part, std::string_view instead) {
  std::string text(kGolden);
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  EXPECT_EQ(text.find(part, at + 1), std::string::npos) << part << " is there twice";
  return text.replace(at, part.size(), instead);
}
std::string refusal(std::string_view part, std::string_view instead) {
  return refusal(with(part, instead));
}

std::string encode_refusal(const Manifest& manifest) {
  const Result<std::string> text = encode_manifest(manifest);
  if (text.ok()) return "";
  EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
  return text.error().message();
}

TEST(ManifestText, OfVersion1IsGolden) {
  EXPECT_EQ(encode_manifest(sample::manifest()).value(), kGolden);
}

TEST(ManifestText, ComesBackWithEveryField) {
  const Manifest got = decode_manifest(kGolden).value();
  EXPECT_EQ(encode_manifest(got).value(), kGolden);
  EXPECT_EQ(got.session_id, 0x5e551077'5e551077u);
  EXPECT_EQ(got.device_ids, (std::vector<int32_t>{0, 2}));
  ASSERT_EQ(got.env.size(), 2u);
  EXPECT_EQ(got.env[1].second, "say \"h\xc3\xa9\"\n");
  EXPECT_EQ(got.limits.depth, 8u);
  EXPECT_EQ(got.data_profile.paths.size(), 3u);
  ASSERT_EQ(got.dispatcher.size(), 2u);
  EXPECT_EQ(got.dispatcher[1].kind, CallableKind::kPythonImport);
  EXPECT_EQ(got.dispatcher[1].symbol, "Tile.gemm");
  EXPECT_EQ(got.log_level, LogLevel::kWarning);
}

TEST(ManifestText, OfTheDefaultsComesBack) {
  const std::string text = encode_manifest(Manifest{}).value();
  EXPECT_EQ(encode_manifest(decode_manifest(text).value()).value(), text);
}

TEST(ManifestText, BlanksAndTheOrderOfKeysMeanNothing) {
  std::string text = with(R"(,"log_level":"WARNING"})", "}\n ");
  text.replace(0, 1, "{ \"log_level\" :\t\"WARNING\",\r\n");
  EXPECT_EQ(encode_manifest(decode_manifest(text).value()).value(), kGolden);
  EXPECT_EQ(refusal("\"L5/2\"", R"("\u004c5\/2")"), "");
}

TEST(ManifestText, CutAnywhereIsRefused) {
  for (size_t n = 0; n < kGolden.size(); ++n) {
    const std::string why = refusal(kGolden.substr(0, n));
    ASSERT_TRUE(why.starts_with("manifest: ")) << n << ": " << why;
  }
}

// Each byte, changed in each of three ways: what is still taken has a text of its own.
TEST(ManifestText, WhatIsTakenHasOneText) {
  std::string text(kGolden);
  for (size_t i = 0; i < text.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x08, 0x80}) {
      text[i] = static_cast<char>(text[i] ^ flip);
      if (const Result<Manifest> got = decode_manifest(text)) {
        const std::string own = encode_manifest(*got).value();
        ASSERT_NE(own, kGolden) << i;
        ASSERT_EQ(encode_manifest(decode_manifest(own).value()).value(), own) << i;
      }
      text[i] = static_cast<char>(text[i] ^ flip);
    }
  }
}

TEST(ManifestText, ThatIsNoJsonIsRefusedWithThePlace) {
  EXPECT_EQ(refusal(""), "manifest: it is no JSON from byte 1 on");
  EXPECT_EQ(refusal("[]"), "manifest: it is no object");
  EXPECT_EQ(refusal("7"), "manifest: it is no object");
  EXPECT_EQ(refusal("{} {}"), "manifest: session_id: is missing");
  EXPECT_EQ(refusal(std::string(kGolden) + "x"), "manifest: it is no JSON from byte 1108 on");
  EXPECT_EQ(refusal(std::string(kGolden) + '\0'), "manifest: it has a zero byte");
  EXPECT_EQ(refusal("\"cwd\":\"runs/a\"", "\"cwd\":'runs/a'"),
            "manifest: cwd: is no JSON from byte 291 on");
  EXPECT_EQ(refusal("\"cwd\":\"runs/a\"", "\"cwd\":\"runs\xff\""),
            "manifest: cwd: is no JSON from byte 296 on");
  EXPECT_EQ(refusal("\"depth\":8", "/* */\"depth\":8"),
            "manifest: limits.slots: is no JSON from byte 324 on");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":NaN"),
            "manifest: limits.depth: is no JSON from byte 332 on");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":8 9"),
            "manifest: limits.depth: is no JSON from byte 334 on");
}

TEST(ManifestText, Over1MiBIsRefusedUnread) {
  std::string text(kGolden);
  text.append(kManifestBytesMax - text.size(), ' ');
  EXPECT_EQ(refusal(text), "");
  text += ' ';
  EXPECT_EQ(refusal(text), "manifest: it has 1048577 bytes, at most 1048576");
}

TEST(ManifestText, UnknownKeysAreRefused) {
  EXPECT_EQ(refusal("\"features\":1", "\"features\":1,\"colour\":1"),
            "manifest: colour: is no key of a manifest");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":8,\"width\":9"),
            "manifest: limits.width: is no key of a manifest");
  EXPECT_EQ(refusal(R"("symbol":"trsm")", R"("symbol":"trsm","payload":"")"),
            "manifest: inner[0].payload: is no key of a manifest");
  EXPECT_EQ(refusal("\"depth\"", "\"\""), "manifest: limits.: is no key of a manifest");
  const std::string shown =
      refusal("\"features\":1", "\"a\\u0007" + std::string(200, 'b') + "\":1");
  EXPECT_EQ(shown, "manifest: a?" + std::string(62, 'b') + "...: is no key of a manifest");
}

TEST(ManifestText, RepeatedKeysAreRefused) {
  EXPECT_EQ(refusal("\"features\":1", "\"features\":1,\"features\":1"),
            "manifest: features: comes twice");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":8,\"depth\":8"),
            "manifest: limits.depth: comes twice");
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1")", R"("GREETING":"1")"),
            "manifest: env.GREETING: comes twice");
  EXPECT_EQ(refusal("\"level\":4", "\"limits\":{},\"level\":4"),
            "manifest: limits.slots: is missing");
}

TEST(ManifestText, EveryKeyIsNeeded) {
  EXPECT_EQ(refusal("\"features\":1,", ""), "manifest: features: is missing");
  EXPECT_EQ(refusal("\"depth\":8,", ""), "manifest: limits.depth: is missing");
  EXPECT_EQ(refusal(R"(,"symbol":"trsm")", ""), "manifest: inner[0].symbol: is missing");
  EXPECT_EQ(refusal(R"(,"log_level":"WARNING")", ""), "manifest: log_level: is missing");
  EXPECT_EQ(refusal("{}"), "manifest: session_id: is missing");
}

TEST(ManifestText, WrongTypesAreRefused) {
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":\"7\""),
            "manifest: worker_id: is a text, not a whole number");
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":7.0"),
            "manifest: worker_id: is no whole number of 64 bits, not a whole number");
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":18446744073709551616"),
            "manifest: worker_id: is no whole number of 64 bits, not a whole number");
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":null"),
            "manifest: worker_id: is null, not a whole number");
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":[7]"),
            "manifest: worker_id: is a list, not a whole number");
  EXPECT_EQ(refusal("\"worker_id\":7", "\"worker_id\":{}"),
            "manifest: worker_id: is an object, not a whole number");
  EXPECT_EQ(refusal("\"reserve_memory\":false", "\"reserve_memory\":0"),
            "manifest: limits.reserve_memory: is a number, not true or false");
  EXPECT_EQ(refusal("\"cwd\":\"runs/a\"", "\"cwd\":true"),
            "manifest: cwd: is true or false, not a text");
  EXPECT_EQ(refusal("\"cpus\":[4,5,6]", "\"cpus\":4"), "manifest: cpus: is a number, not a list");
  EXPECT_EQ(refusal("\"cpus\":[4,5,6]", "\"cpus\":[4,\"5\"]"),
            "manifest: cpus[1]: is a text, not a whole number");
  EXPECT_EQ(refusal("\"log_level\":\"WARNING\"", "\"log_level\":3"),
            "manifest: log_level: is a number, not one of its names");
  EXPECT_EQ(refusal("[\"MAPPED\",", "[0,"),
            "manifest: data_profile.paths[0]: is a number, not one of its names");
  EXPECT_EQ(refusal(R"({"kind":"PYTHON_IMPORT","module":"pkg.tiles","symbol":"Tile.gemm"})", "[]"),
            "manifest: dispatcher[1]: is a list, not an object");
  EXPECT_EQ(refusal(R"("data_profile":{"transport":"tcp","paths":["MAPPED","SOCKET","RELAYED"]})",
                    R"("data_profile":"tcp")"),
            "manifest: data_profile: is a text, not an object");
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1")", R"("OMP_NUM_THREADS":1)"),
            "manifest: env.OMP_NUM_THREADS: is a number, not a text");
}

TEST(ManifestText, NestedTooDeeplyIsRefusedWhereItBegins) {
  EXPECT_EQ(refusal("[4,5,6]", std::string(100'000, '[')),
            "manifest: cpus[0]: is a list, not a whole number");
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"slots\":";
  EXPECT_EQ(refusal("\"slots\":16384", "\"slots\":" + objects),
            "manifest: limits.slots: is an object, not a whole number");
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1")", R"("OMP_NUM_THREADS":{"A":{}})"),
            "manifest: env.OMP_NUM_THREADS: is an object, not a text");
  EXPECT_EQ(refusal(R"("symbol":"trsm")", R"("symbol":{"a":1})"),
            "manifest: inner[0].symbol: is an object, not a text");
}

TEST(ManifestText, NumbersOutOfRangeAreRefused) {
  EXPECT_EQ(refusal("\"session_id\":6797357317455417463", "\"session_id\":0"),
            "manifest: session_id: is 0, it must be 1 to 18446744073709551615");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":63"),
            "manifest: limits.depth: is 63, it must be 1 to 62");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":0"),
            "manifest: limits.depth: is 0, it must be 1 to 62");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":-8"),
            "manifest: limits.depth: is negative, it must be 1 to 62");
  EXPECT_EQ(refusal("\"depth\":8", "\"depth\":4294967304"),
            "manifest: limits.depth: is 4294967304, it must be 1 to 62");
  EXPECT_EQ(refusal("[4,5,6]", "[4,65536]"), "manifest: cpus[1]: is 65536, it must be 0 to 65535");
  EXPECT_EQ(refusal("\"parent_level\":5", "\"parent_level\":7"),
            "manifest: parent_level: is 7, it must be 4 to 6");
  EXPECT_EQ(refusal("\"WARNING\"", "\"LOUD\""),
            "manifest: log_level: is \"LOUD\", none of its names");
  EXPECT_EQ(refusal("\"SOCKET\"", "\"UCX_RDMA\""),
            "manifest: data_profile.paths[1]: is \"UCX_RDMA\", none of its names");
}

TEST(ManifestText, ListsAndTextsAreBounded) {
  const auto numbers = [](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += fmt::format("{}{}", i == 0 ? "[" : ",", i);
    return out + "]";
  };
  EXPECT_EQ(refusal("[0,2]", numbers(kManifestDevicesMax)), "");
  EXPECT_EQ(refusal("[0,2]", numbers(kManifestDevicesMax + 1)),
            "manifest: device_ids[1024]: has 1025 items, at most 1024");
  EXPECT_EQ(refusal("\"L5/2\"", '"' + std::string(256, 'x') + '"'),
            "manifest: parent_path: has 256 bytes, at most 255");
  EXPECT_EQ(refusal("\"L5/2\"", "\"\\u0000\""), "manifest: parent_path: has a zero byte");
  std::string env;
  for (uint32_t i = 0; i < kManifestEnvMax - 1; ++i) env += fmt::format("\"V{}\":\"\",", i);
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1",)", env), "");
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1",)", env + R"("ONE_MORE":"",)"),
            "manifest: env.GREETING: has 65 items, at most 64");
  EXPECT_EQ(refusal(R"("OMP_NUM_THREADS":"1")",
                    R"("A":")" + std::string(kManifestEnvBytesMax + 1, 'x') + '"'),
            "manifest: env.A: has 4097 bytes, at most 4096");
}

TEST(ManifestText, NamesOfVariablesAreWords) {
  for (const char* bad : {"", "1A", "A-B", "A=B", "A B", "\\u00e9"}) {
    EXPECT_NE(refusal("\"OMP_NUM_THREADS\"", fmt::format("\"{}\"", bad)), "") << bad;
  }
  EXPECT_EQ(refusal("\"OMP_NUM_THREADS\"", "\"A=B\""),
            "manifest: env.A=B: is no name of a variable: letters, digits and _, no digit first");
  EXPECT_EQ(refusal("\"OMP_NUM_THREADS\"", '"' + std::string(256, 'A') + '"'),
            "manifest: env." + std::string(64, 'A') + "...: has 256 bytes, at most 255");
}

TEST(ManifestRules, GoBeyondOneKey) {
  EXPECT_EQ(refusal("\"level\":4", "\"level\":5"), "manifest: level: is 5, its parent's is 5");
  EXPECT_EQ(refusal("[4,5,6]", "[4,5,4]"), "manifest: cpus[2]: is 4 again");
  EXPECT_EQ(refusal("[0,2]", "[2,2]"), "manifest: device_ids[1]: is 2 again");
  EXPECT_EQ(refusal("\"RELAYED\"", "\"MAPPED\""),
            "manifest: data_profile.paths[2]: is MAPPED again");
  EXPECT_EQ(refusal("\"platform\":\"cpu\"", "\"platform\":\"\""), "manifest: platform: is empty");
  EXPECT_EQ(refusal("\"tensormap_and_ringbuffer\"", "\"\""), "manifest: runtime: is empty");
  EXPECT_EQ(refusal("\"transport\":\"tcp\"", "\"transport\":\"\""),
            "manifest: data_profile.transport: is empty");
  for (const char* bad : {"/tmp", "..", "a/../b", "../a"}) {
    EXPECT_EQ(refusal("runs/a", bad),
              "manifest: cwd: leaves the daemon's folder: it must be relative and without \"..\"");
  }
  EXPECT_EQ(refusal("\"beat_ms\":250", "\"beat_ms\":3000"),
            "manifest: timeouts.hold_ms: is 3000: it must be more than beat_ms, 3000, and less "
            "than parent_verdict_ms, 5000");
  EXPECT_NE(refusal("\"parent_verdict_ms\":5000", "\"parent_verdict_ms\":3000"), "");
}

TEST(ManifestRules, CallablesAreImports) {
  const std::string python =
      R"({"kind":"PYTHON_IMPORT","module":"pkg.tiles","symbol":"Tile.gemm"})";
  const auto callable = [&](const char* kind, const char* module, const char* symbol) {
    return refusal(python, fmt::format(R"({{"kind":"{}","module":"{}","symbol":"{}"}})", kind,
                                       module, symbol));
  };
  EXPECT_EQ(callable("NATIVE_IMPORT", "liba.so", "b"), "");
  EXPECT_EQ(callable("CHIP_CALLABLE", "liba.so", "b"),
            "manifest: dispatcher[1].kind: is CHIP_CALLABLE, which travels as a control");
  EXPECT_EQ(callable("PYTHON_SERIALIZED", "a", "b"),
            "manifest: dispatcher[1].kind: is \"PYTHON_SERIALIZED\", none of its names");
  EXPECT_NE(callable("NATIVE_IMPORT", "../liba.so", "b"), "");
  EXPECT_NE(callable("NATIVE_IMPORT", "liba.so", "1b"), "");
  for (const char* bad : {"", "a:b", "a b", ".a", "a.", "a..b", "a/b"}) {
    EXPECT_EQ(callable("PYTHON_IMPORT", bad, "b"),
              "manifest: dispatcher[1].module: is no name of a Python module")
        << bad;
    EXPECT_EQ(callable("PYTHON_IMPORT", "a", bad),
              "manifest: dispatcher[1].symbol: is no qualified name of Python")
        << bad;
  }
}

TEST(ManifestRules, WhatDecodeRefusesIsNotSent) {
  const auto changed = [](auto&& change) {
    Manifest manifest = sample::manifest();
    change(manifest);
    return encode_refusal(manifest);
  };
  EXPECT_EQ(changed([](Manifest&) {}), "");
  EXPECT_EQ(changed([](Manifest& m) { m.worker_id = -1; }),
            "manifest: worker_id: is -1, it must be 0 to 65535");
  EXPECT_EQ(changed([](Manifest& m) { m.limits.depth = 63; }),
            "manifest: limits.depth: is 63, it must be 1 to 62");
  EXPECT_EQ(changed([](Manifest& m) {
              m.cpus = {1, -1};
            }),
            "manifest: cpus[1]: is -1, it must be 0 to 65535");
  EXPECT_EQ(changed([](Manifest& m) { m.device_ids.resize(1025); }),
            "manifest: device_ids: has 1025 items, at most 1024");
  EXPECT_EQ(changed([](Manifest& m) { m.log_level = static_cast<LogLevel>(9); }),
            "manifest: log_level: is none of its names");
  EXPECT_EQ(changed([](Manifest& m) { m.data_profile.paths = {static_cast<Path>(2)}; }),
            "manifest: data_profile.paths[0]: is none of its names");
  EXPECT_EQ(changed([](Manifest& m) { m.build = "\xff"; }), "manifest: build: is not UTF-8");
  EXPECT_EQ(changed([](Manifest& m) {
              m.env = {{"A", "1"}, {"A", "2"}};
            }),
            "manifest: env.A: comes twice");
  EXPECT_EQ(changed([](Manifest& m) {
              m.env = {{"A B", "1"}};
            }),
            "manifest: env.A B: is no name of a variable: letters, digits and _, no digit first");
  EXPECT_EQ(changed([](Manifest& m) { m.inner[0].module.assign(256, 'x'); }),
            "manifest: inner[0].module: has 256 bytes, at most 255");
  EXPECT_EQ(changed([](Manifest& m) { m.cwd = "/"; }),
            "manifest: cwd: leaves the daemon's folder: it must be relative and without \"..\"");
  const std::string long_name(250, 'x');
  EXPECT_EQ(changed([&](Manifest& m) {
              m.inner.assign(4096, {CallableKind::kPythonImport, long_name, long_name});
            }).substr(0, 17),
            "manifest: it has ");
}

}  // namespace
}  // namespace strata::wire
