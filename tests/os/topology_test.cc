#include "os/topology.h"

#include <gtest/gtest.h>

#include "os/process.h"

namespace strata::os {
namespace {

TopologySummary synthetic(const std::string& description) {
  Result<Topology> topology = Topology::synthetic(description);
  EXPECT_TRUE(topology.ok()) << topology.error().to_string();
  return topology->summary();
}

TEST(Topology, TwoPackagesWithTheirCoresAndCachesAreCounted) {
  const TopologySummary machine =
      synthetic("package:2 l3:1(size=33554432) core:4 l2:1(size=1048576) l1d:1(size=32768) pu:2");
  EXPECT_EQ(machine.packages, 2u);
  EXPECT_EQ(machine.cores, 8u);
  EXPECT_EQ(machine.pus, 16u);
  EXPECT_EQ(machine.allowed_pus, 16u);
  EXPECT_EQ(machine.allowed, "0-15");
  ASSERT_EQ(machine.caches.size(), 3u);
  EXPECT_EQ(machine.caches[0].name, "L1d");
  EXPECT_EQ(machine.caches[0].bytes, 32768u);
  EXPECT_EQ(machine.caches[0].count, 8u);
  EXPECT_EQ(machine.caches[0].shared_pus, 2u);
  EXPECT_EQ(machine.caches[2].name, "L3");
  EXPECT_EQ(machine.caches[2].bytes, 33554432u);
  EXPECT_EQ(machine.caches[2].count, 2u);
  EXPECT_EQ(machine.caches[2].shared_pus, 8u);
}

TEST(Topology, NumaNodesHaveTheirMemoryAndTheirProcessors) {
  const TopologySummary machine = synthetic("numa:2(memory=4294967296) core:2 pu:1");
  ASSERT_EQ(machine.numa_nodes.size(), 2u);
  EXPECT_EQ(machine.numa_nodes[0].memory_bytes, 4294967296u);
  EXPECT_EQ(machine.numa_nodes[0].pus, "0-1");
  EXPECT_EQ(machine.numa_nodes[1].number, 1u);
  EXPECT_EQ(machine.numa_nodes[1].pus, "2-3");
  EXPECT_EQ(machine.processor, "");
}

TEST(Topology, AMachineWithoutCachesHasNone) {
  const TopologySummary machine = synthetic("pu:3");
  EXPECT_EQ(machine.pus, 3u);
  EXPECT_TRUE(machine.caches.empty());
}

TEST(Topology, ADescriptionThatIsNoneIsAnErrorThatQuotesIt) {
  const Result<Topology> topology = Topology::synthetic("chair:4");
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.error().code(), Code::kInvalidArgument);
  EXPECT_NE(topology.error().message().find("chair:4"), std::string::npos);
}

TEST(Topology, ThisMachineHasAtLeastTheProcessorsOfTheMaskAndStaysOfOneThread) {
  Result<Topology> topology = Topology::load();
  ASSERT_TRUE(topology.ok()) << topology.error().to_string();
  const Topology moved = std::move(*topology);
  const TopologySummary machine = moved.summary();
  EXPECT_GE(machine.pus, machine.allowed_pus);
  EXPECT_GE(machine.allowed_pus, machine.bound_pus);
  EXPECT_EQ(machine.bound_pus, static_cast<size_t>(cores_in_affinity_mask()));
  EXPECT_GE(machine.cores, 1u);
  EXPECT_FALSE(machine.numa_nodes.empty());
  // A program may load it before it forks its children.
  EXPECT_EQ(fork_hazards().value().other_threads, 0);
}

}  // namespace
}  // namespace strata::os
