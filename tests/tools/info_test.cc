#include "tools/info.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/capacity.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Text, BytesHaveTheUnitThatKeepsThemShort) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(64ull << 30), "64 GiB");
  EXPECT_EQ(bytes_text((1ull << 30) - 1), "1 GiB");
  EXPECT_EQ(bytes_text(~0ull), "16 EiB");
}

TEST(Text, LongTextGoesOnIndentedAndNoWordIsLost) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one", 1, 2), "one");
  EXPECT_EQ(wrapped("", 5, 2), "");
  EXPECT_EQ(limit_text(std::nullopt), "unlimited");
}

TEST(Capacity, DescriptorsBoundTheChildren) {
  EXPECT_EQ(children_by_descriptors(15), 0u);
  EXPECT_EQ(children_by_descriptors(19), 1u);
  EXPECT_EQ(children_by_descriptors(1024), 252u);
  EXPECT_EQ(children_by_descriptors(1u << 20), kChildrenMax);
  EXPECT_EQ(children_by_descriptors(std::nullopt), kChildrenMax);
}

TEST(Capacity, TheTightestLimitOfProcessesCounts) {
  os::CgroupLimits cgroup;
  EXPECT_EQ(processes_left(std::nullopt, 5, std::nullopt, 9, cgroup), std::nullopt);
  EXPECT_EQ(processes_left(100, 5, 32768, 900, cgroup), 95u);
  EXPECT_EQ(processes_left(100, 5, 910, 900, cgroup), 10u);
  EXPECT_EQ(processes_left(4, 5, 910, 900, cgroup), 0u);
  cgroup.processes = 20;
  cgroup.processes_used = 17;
  EXPECT_EQ(processes_left(100, 5, 910, 900, cgroup), 3u);
}

TEST(Capacity, AControlGroupLeavesLessThanTheMachineHas) {
  os::MemoryState memory;
  memory.available = 1000;
  os::CgroupLimits cgroup;
  EXPECT_EQ(memory_left(memory, cgroup), 1000u);
  cgroup.memory_bytes = 600;
  cgroup.memory_used = 100;
  EXPECT_EQ(memory_left(memory, cgroup), 500u);
  cgroup.memory_used = 700;
  EXPECT_EQ(memory_left(memory, cgroup), 0u);
}

Info small_machine() {
  Info info;
  info.build = build_info();
  info.topology = os::Topology::synthetic("numa:2 core:3 pu:2").value().summary();
  info.cgroup.cpus = 0.5;
  info.limits.push_back({"open files", "nofile", 64, 128, "room for few"});
  info.limits.push_back({"address space", "as", std::nullopt, std::nullopt, "all of it"});
  info.fork_hazards.other_threads = 1;
  info.auto_method = "exec";
  info.auto_reason = "because of that";
  info.no_child_server = "looked everywhere";
  return info;
}

TEST(Info, TextNamesWhatIsThereAndWhatIsNot) {
  const std::string text = to_text(small_machine());
  EXPECT_TRUE(has(text, "6 cores, 12 hardware threads")) << text;
  EXPECT_TRUE(has(text, "0.50 cores (control group)")) << text;
  EXPECT_TRUE(has(text, "64: room for few")) << text;
  EXPECT_TRUE(has(text, "unlimited: all of it")) << text;
  EXPECT_TRUE(has(text, "refused here: 1 other thread")) << text;
  EXPECT_TRUE(has(text, "takes exec: because of that")) << text;
  EXPECT_TRUE(has(text, "not possible: looked everywhere")) << text;
  EXPECT_TRUE(has(text, "none: local children by shared memory only")) << text;
}

TEST(Info, JsonHasNumbersAsNumbersAndTheUnknownAsNull) {
  const nlohmann::ordered_json json = to_json(small_machine());
  EXPECT_EQ(json["machine"]["pus"], 12);
  EXPECT_EQ(json["machine"]["numa_nodes"].size(), 2u);
  EXPECT_EQ(json["limits"]["nofile"]["value"], 64);
  EXPECT_EQ(json["limits"]["nofile"]["hard"], 128);
  EXPECT_TRUE(json["limits"]["as"]["value"].is_null());
  EXPECT_EQ(json["cgroup"]["cpus"], 0.5);
  EXPECT_FALSE(json["start_methods"]["fork"]["possible"]);
  EXPECT_EQ(json["start_methods"]["fork"]["hazards"], "1 other thread");
  EXPECT_EQ(json["start_methods"]["auto"]["method"], "exec");
  EXPECT_EQ(json["start_methods"]["auto"]["reason"], "because of that");
  EXPECT_FALSE(json["start_methods"]["exec"]["possible"]);
  EXPECT_TRUE(json["start_methods"]["exec"]["program"].is_null());
  EXPECT_FALSE(json["chip_backends"]["cuda"]);
}

TEST(Info, AMachineWithoutTopologySaysWhy) {
  Info info = small_machine();
  info.topology.reset();
  info.topology_error = "no /sys";
  EXPECT_TRUE(has(to_text(info), "not known: no /sys"));
  EXPECT_TRUE(to_json(info)["machine"].is_null());
  EXPECT_EQ(to_json(info)["machine_error"], "no /sys");
}

TEST(Info, OfThisMachineIsComplete) {
  const Info info = gather_info();
  ASSERT_TRUE(info.topology.has_value()) << info.topology_error;
  EXPECT_GT(info.memory.total, 0u);
  EXPECT_EQ(info.limits.size(), 9u);
  EXPECT_FALSE(info.fork_hazards.any()) << info.fork_hazards.to_string();
  EXPECT_EQ(info.auto_method, "fork") << info.auto_reason;
  EXPECT_NE(info.child_server.empty(), info.no_child_server.empty());
  EXPECT_GE(info.processes.machine, info.processes.user);
  EXPECT_GE(info.processes.user, 1u);
}

TEST(BuildInfo, LayoutIdIsSixteenDigitsAndTheSameEverywhere) {
  const BuildInfo build = build_info();
  EXPECT_EQ(layout_id_text(build).size(), 18u);
  EXPECT_TRUE(has(to_text(build), layout_id_text(build)));
  EXPECT_EQ(to_json(build)["layout_id"], layout_id_text(build));
  EXPECT_EQ(to_json(build)["version"], build.version);
}

}  // namespace
}  // namespace strata::tools
