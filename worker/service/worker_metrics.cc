#include "worker/service/worker_metrics.h"

#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// One metric, a series for each tier.
class Family {
 public:
  Family(const std::string& worker, const char* name, const char* help, MetricType type)
      : worker_(worker) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  Family& Add(const char* tier, double value) {
    ClientMetric metric;
    metric.label = {{"worker", worker_}, {"tier", tier}};
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  const std::string worker_;
  MetricFamily family_;
};

}  // namespace

std::vector<MetricFamily> WorkerMetrics::Collect() const {
  const WorkerTiers tiers = tiers_.tiers();
  const TierTotals totals = tiers_.totals();
  const ArenaUsage device = device_.arena().usage();
  Family capacity(worker_, "tessera_tier_capacity_bytes",
                  "Bytes that the tier may hold; of nvme with what is free beside its reserve.",
                  MetricType::Gauge);
  Family resident(worker_, "tessera_tier_resident_bytes", "Bytes that the tier holds.",
                  MetricType::Gauge);
  Family pinned(worker_, "tessera_tier_pinned_ratio",
                "1 where the tier's memory is page-locked, else 0.", MetricType::Gauge);
  Family read(worker_, "tessera_tier_read_bytes_total", "Bytes of jobs' state read from the tier.",
              MetricType::Counter);
  Family written(worker_, "tessera_tier_written_bytes_total",
                 "Bytes of jobs' state written to the tier.", MetricType::Counter);
  Family late(worker_, "tessera_tier_late_reads_total",
              "Reads that had not come when they were needed.", MetricType::Counter);
  Family wait(worker_, "tessera_tier_wait_seconds_total",
              "Time that jobs waited for the tier: late reads, full buffers, commits.",
              MetricType::Counter);
  auto add_traffic = [&](const char* tier, const TierCounts& counts) {
    read.Add(tier, static_cast<double>(counts.read_bytes));
    written.Add(tier, static_cast<double>(counts.written_bytes));
    late.Add(tier, static_cast<double>(counts.late_reads));
    wait.Add(tier, counts.wait_seconds);
  };
  capacity.Add("device", static_cast<double>(device.capacity_bytes));
  resident.Add("device", static_cast<double>(device.current_bytes));
  if (tiers.host != nullptr) {
    const ArenaUsage host = tiers.host->arena().usage();
    capacity.Add("host", static_cast<double>(host.capacity_bytes));
    resident.Add("host", static_cast<double>(host.current_bytes));
    pinned.Add("host", tiers_.is_pinned() ? 1 : 0);
    add_traffic("host", totals.host);
  }
  if (tiers.nvme != nullptr) {
    const auto held = static_cast<double>(tiers.nvme->stats().resident_bytes);
    capacity.Add("nvme", held + static_cast<double>(tiers.nvme->free_bytes()));
    resident.Add("nvme", held);
    add_traffic("nvme", totals.nvme);
  }
  std::vector<MetricFamily> families;
  for (Family* family : {&capacity, &resident, &pinned, &read, &written, &late, &wait}) {
    families.push_back(family->Take());
  }
  return families;
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(
    const std::string& address, std::shared_ptr<WorkerMetrics> metrics) {
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
    exposer->RegisterCollectable(metrics);
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::move(exposer), std::move(metrics)));
  } catch (const std::exception& error) {  // of the library
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen=", address,
                     ": must be PORT or ADDRESS:PORT of this host, and free: ", error.what()));
  }
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer,
                             std::shared_ptr<WorkerMetrics> metrics)
    : metrics_(std::move(metrics)), exposer_(std::move(exposer)) {}

MetricsServer::~MetricsServer() = default;

}  // namespace tessera
