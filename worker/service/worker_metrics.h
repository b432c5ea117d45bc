// What a worker tells Prometheus: its memory and its tiers.
#ifndef TESSERA_WORKER_SERVICE_WORKER_METRICS_H_
#define TESSERA_WORKER_SERVICE_WORKER_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/service/tier_holder.h"

namespace prometheus {
class Exposer;
}

namespace tessera {

// Asked at each scrape; thread-safe. device and tiers outlive it.
class WorkerMetrics : public prometheus::Collectable {
 public:
  // worker: "workers/w0", the label of all series.
  WorkerMetrics(std::string worker, Device& device, const TierHolder& tiers)
      : worker_(std::move(worker)), device_(device), tiers_(tiers) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string worker_;
  Device& device_;
  const TierHolder& tiers_;
};

// Serves /metrics for as long as it lives. Thread-safe.
class MetricsServer {
 public:
  // address: "host:port". INVALID_ARGUMENT: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Create(
      const std::string& address, std::shared_ptr<WorkerMetrics> metrics);
  ~MetricsServer();

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer,
                std::shared_ptr<WorkerMetrics> metrics);

  const std::shared_ptr<WorkerMetrics> metrics_;  // of which the exposer keeps no hold
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_WORKER_METRICS_H_
