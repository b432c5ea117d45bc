#include "cli/render.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/job_report.h"
#include "cli/memory_report.h"
#include "cli/plot.h"
#include "cli/table.h"

namespace tessera {
namespace {

using google::protobuf::util::TimeUtil;

std::string Id(absl::string_view name) { return std::string(name.substr(name.find('/') + 1)); }

std::string WorkerStateName(v1::WorkerState state) {
  absl::string_view name = v1::WorkerState_Name(state);
  absl::ConsumePrefix(&name, "WORKER_STATE_");
  return std::string(name);
}

std::string LossText(double loss) { return absl::StrFormat("%.4f", loss); }

// "device" where all is there, else "optimizer nvme, parameters device".
std::string TiersText(const std::map<std::string, std::set<std::string>>& tiers_of_kinds) {
  std::set<std::string> all;
  std::vector<std::string> parts;
  for (const auto& [kind, tiers] : tiers_of_kinds) {
    all.insert(tiers.begin(), tiers.end());
    parts.push_back(absl::StrCat(kind, " ", absl::StrJoin(tiers, "+")));
  }
  if (all.empty()) return "-";
  return all.size() == 1 ? *all.begin() : absl::StrJoin(parts, ", ");
}

PlotSeries Series(char mark, const std::string& label,
                  const google::protobuf::RepeatedPtrField<v1::LossPoint>& curve) {
  PlotSeries series{mark, label, {}};
  for (const v1::LossPoint& point : curve) {
    series.points.emplace_back(static_cast<double>(point.step()), point.loss());
  }
  return series;
}

}  // namespace

std::string StateName(v1::JobState state) {
  absl::string_view name = v1::JobState_Name(state);
  absl::ConsumePrefix(&name, "JOB_STATE_");
  return std::string(name);
}

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string HumanBytes(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.3g %s", bytes, units[unit]);
}

std::string ExactBytes(int64_t bytes) {
  const std::string human = HumanBytes(static_cast<double>(bytes));
  return bytes < 1000 ? human : absl::StrCat(human, " (", bytes, ")");
}

std::string HumanSeconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (total < 60) return absl::StrCat(total, "s");
  if (total < 3600) return absl::StrFormat("%dm%02ds", total / 60, total % 60);
  return absl::StrFormat("%dh%02dm", total / 3600, total / 60 % 60);
}

std::string MeshText(const v1::MeshSpec& mesh) {
  auto size = [](int32_t value) { return value == 0 ? 1 : value; };
  return absl::StrFormat("dp=%d cp=%d pp=%d tp=%d", size(mesh.dp()), size(mesh.cp()),
                         size(mesh.pp()), size(mesh.tp()));
}

std::string Printable(const std::string& bytes) {
  std::string text;
  for (char c : bytes) {
    if (c == '\n' || (absl::ascii_isprint(c) != 0)) {
      text += c;
    } else {
      absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return text;
}

std::string JobTable(const std::vector<v1::TrainingJob>& jobs, bool wide) {
  std::vector<std::string> header = {"NAME", "STATE", "STEP", "LOSS", "VAL", "MESH", "AGE"};
  if (wide) header.insert(header.end(), {"EPOCH", "UID", "REASON"});
  Table table(header);
  for (const v1::TrainingJob& job : jobs) {
    const v1::TrainingJobStatus& status = job.status();
    const v1::JobProgress& progress = status.progress();
    const double age =
        static_cast<double>(TimeUtil::TimestampToSeconds(TimeUtil::GetCurrentTime()) -
                            TimeUtil::TimestampToSeconds(job.create_time()));
    std::vector<std::string> row = {
        Id(job.name()),
        StateName(status.state()),
        absl::StrCat(progress.step(), "/", progress.total_steps()),
        progress.step() > 0 ? LossText(progress.loss()) : "-",
        progress.has_validation_loss() ? LossText(progress.validation_loss()) : "-",
        MeshText(job.spec().mesh()),
        HumanSeconds(age)};
    if (wide) {
      row.insert(row.end(),
                 {absl::StrCat(status.epoch()), job.uid(),
                  status.conditions().empty() ? "-" : status.conditions().rbegin()->reason()});
    }
    table.Add(row);
  }
  return table.ToString();
}

std::string WorkerTable(const std::vector<v1::Worker>& workers, bool wide) {
  std::vector<std::string> header = {"NAME",   "STATE", "JOB",  "DEVICE",
                                     "MEMORY", "USED",  "HOST", "PID"};
  if (wide) {
    header.insert(header.end(),
                  {"HOST MEMORY", "USED", "NVME FREE", "USED", "VERSION", "INSTANCE", "MESSAGE"});
  }
  Table table(header);
  for (const v1::Worker& worker : workers) {
    std::vector<std::string> row = {
        Id(worker.name()),
        WorkerStateName(worker.state()),
        worker.training_job().empty() ? "-" : Id(worker.training_job()),
        worker.device_kind(),
        HumanBytes(static_cast<double>(worker.device_memory_bytes())),
        HumanBytes(static_cast<double>(worker.device_memory_used_bytes())),
        worker.host_name(),
        absl::StrCat(worker.pid())};
    if (wide) {
      const std::string pinned = worker.host_memory_pinned() ? " pinned" : "";
      row.insert(row.end(), {HumanBytes(static_cast<double>(worker.host_memory_bytes())) + pinned,
                             HumanBytes(static_cast<double>(worker.host_memory_used_bytes())),
                             HumanBytes(static_cast<double>(worker.nvme_free_bytes())),
                             HumanBytes(static_cast<double>(worker.nvme_used_bytes()))});
      row.insert(row.end(), {worker.version(), worker.instance_id(),
                             worker.message().empty() ? "-" : worker.message()});
    }
    table.Add(row);
  }
  return table.ToString();
}

std::string PlacementTable(const v1::Placement& placement, bool wide) {
  std::string text =
      absl::StrCat(placement.training_job(), "  ", StateName(placement.state()), "  epoch ",
                   placement.epoch(), "  axes, outermost first: ", placement.axis_order(), "\n");
  Table ranks({"RANK", "DP", "CP", "PP", "TP", "WORKER", "HEALTH", "PARAMETERS", "GRADIENTS",
               "OPTIMIZER", "TIER", "VERSION"});
  Table shards({"RANK", "UNIT", "KIND", "ELEMENTS", "BYTES", "TIER", "VERSION"});
  for (const v1::RankDetail& rank : placement.ranks()) {
    const v1::MeshCoordinates& at = rank.coordinates();
    std::map<std::string, double> bytes;
    std::map<std::string, std::set<std::string>> tiers;  // by kind
    std::set<int64_t> versions;
    for (const v1::ShardPlacement& shard : rank.shards()) {
      bytes[shard.kind()] += static_cast<double>(shard.size_bytes());
      tiers[shard.kind()].insert(shard.tier());
      versions.insert(shard.version());
      shards.Add({absl::StrCat(at.global_rank()), shard.unit(), shard.kind(),
                  absl::StrCat("[", shard.offset_elements(), ", ",
                               shard.offset_elements() + shard.size_elements(), ")"),
                  HumanBytes(static_cast<double>(shard.size_bytes())), shard.tier(),
                  absl::StrCat(shard.version())});
    }
    ranks.Add({absl::StrCat(at.global_rank()), absl::StrCat(at.dp_rank()),
               absl::StrCat(at.cp_rank()), absl::StrCat(at.pp_rank()), absl::StrCat(at.tp_rank()),
               Id(rank.worker()), WorkerStateName(rank.worker_state()),
               HumanBytes(bytes["parameters"]), HumanBytes(bytes["gradients"]),
               HumanBytes(bytes["optimizer"]), TiersText(tiers),
               versions.empty() ? "-" : absl::StrJoin(versions, ",")});
  }
  absl::StrAppend(&text, ranks.ToString());
  std::set<std::string> seen;
  Table groups({"GROUP", "GLOBAL RANKS"});
  for (const v1::RankDetail& rank : placement.ranks()) {
    for (const v1::GroupAssignment& group : rank.groups()) {
      if (!seen.insert(group.name()).second || (group.members_size() == 1 && !wide)) continue;
      groups.Add({group.name(), absl::StrJoin(group.members(), " ",
                                              [](std::string* out, const v1::GroupMember& member) {
                                                absl::StrAppend(out, member.global_rank());
                                              })});
    }
  }
  absl::StrAppend(&text, "\n", groups.ToString());
  if (wide) absl::StrAppend(&text, "\n", shards.ToString());
  return text;
}

std::string DescribeJob(const v1::TrainingJob& job, bool wide) {
  const v1::TrainingJobStatus& status = job.status();
  const v1::JobProgress& progress = status.progress();
  std::string text;
  auto line = [&](absl::string_view key, const absl::AlphaNum& value) {
    absl::StrAppendFormat(&text, "%-18s %s\n", key, std::string(value.Piece()));
  };
  line("Name", job.name());
  line("UID", job.uid());
  line("Created", TimeUtil::ToString(job.create_time()));
  line("State", StateName(status.state()));
  if (job.spec().priority() != 0 || job.spec().preempt()) {
    line("Priority", absl::StrCat(job.spec().priority(), job.spec().preempt() ? ", preempts" : ""));
  }
  line("Mesh", MeshText(job.spec().mesh()));
  line("Step", absl::StrCat(progress.step(), " of ", progress.total_steps()));
  if (status.has_saved_step()) {
    line("Saved step", absl::StrCat(status.saved_step(), ", on the nvme tiers of its workers"));
  }
  if (status.suspend_requested() && status.state() != v1::JOB_STATE_SUSPENDED) {
    line("Suspend", "requested");
  }
  if (progress.step() > 0) {
    line("Training loss", absl::StrFormat("%.4f nats per target", progress.loss()));
    line("Gradient norm", absl::StrFormat("%.4f", progress.gradient_norm()));
    line("Learning rate", absl::StrFormat("%.3g", progress.learning_rate()));
    line("Tokens/s", absl::StrFormat("%.0f", progress.tokens_per_second()));
  }
  if (progress.has_first_validation_loss()) {
    line("Validation loss",
         absl::StrFormat("first %.4f, last %.4f nats per target", progress.first_validation_loss(),
                         progress.validation_loss()));
  }
  if (!status.weights_worker().empty()) line("Final weights", status.weights_worker());
  if (status.has_error()) line("Error", status.error().message());

  Table conditions({"TIME", "STATE", "REASON", "MESSAGE"});
  for (const v1::JobCondition& condition : status.conditions()) {
    conditions.Add({TimeUtil::ToString(condition.transition_time()), StateName(condition.state()),
                    condition.reason(), condition.message()});
  }
  absl::StrAppend(&text, "\n", conditions.ToString());
  const std::string plot = DrawPlot({Series('.', "training loss", progress.loss_curve()),
                                     Series('o', "validation loss", progress.validation_curve())},
                                    64, 14);
  if (!plot.empty()) absl::StrAppend(&text, "\nLoss, nats per target\n", plot);
  const std::string traffic = TrafficTable(progress);
  if (!traffic.empty()) {
    absl::StrAppend(&text, "\nTraffic of global_rank 0 in the last step\n", traffic);
  }
  const std::string time = StepTimeTable(progress);
  if (!time.empty()) {
    absl::StrAppend(&text, "\nTime of global_rank 0 in the last step\n", time);
  }
  const std::string tiers = TierTrafficTable(progress);
  if (!tiers.empty()) {
    absl::StrAppend(&text, "\nTier traffic of global_rank 0 in the last step\n", tiers);
  }
  const std::string memory = JobMemoryTable(status, wide);
  if (!memory.empty()) {
    absl::StrAppend(&text, "\nMemory, peaks up to the first step",
                    wide ? "" : "; the rank that holds most (-o wide: all)", "\n", memory);
  }
  if (status.has_verification()) {
    absl::StrAppend(&text, "\nVerification\n", VerificationText(job));
  }
  if (!status.sample().empty()) {
    absl::StrAppend(&text, "\nSample\n",
                    absl::StrReplaceAll(Printable(status.sample()), {{"\n", "\n  "}}), "\n");
  }
  return text;
}

std::string CancelAnswer(const v1::TrainingJob& job) {
  if (!IsTerminal(job.status().state())) return job.name() + " is being cancelled\n";
  return absl::StrCat(job.name(), " is ", StateName(job.status().state()), "\n");
}

std::string SuspendAnswer(const v1::TrainingJob& job) {
  if (job.status().state() != v1::JOB_STATE_SUSPENDED) return job.name() + " is being suspended\n";
  return job.name() + " is SUSPENDED\n";
}

std::string ResumeAnswer(const v1::TrainingJob& job) {
  return absl::StrCat(job.name(), " is ", StateName(job.status().state()),
                      job.status().state() == v1::JOB_STATE_SUSPENDING
                          ? "; it goes on as soon as it is suspended\n"
                          : "\n");
}

std::string ProgressLine(const v1::TrainingJob& job) {
  const v1::TrainingJobStatus& status = job.status();
  const v1::JobProgress& progress = status.progress();
  std::string text = absl::StrFormat("%-10s step %d/%d", StateName(status.state()), progress.step(),
                                     progress.total_steps());
  if (progress.step() > 0) absl::StrAppendFormat(&text, "  loss %.4f", progress.loss());
  if (progress.has_validation_loss()) {
    absl::StrAppendFormat(&text, "  val %.4f", progress.validation_loss());
  }
  if (progress.step() > 0) {
    absl::StrAppendFormat(&text, "  %.1fk tokens/s", progress.tokens_per_second() / 1000);
  }
  if (progress.has_seconds_left() && !IsTerminal(status.state())) {
    absl::StrAppend(&text, "  ", HumanSeconds(progress.seconds_left()), " left");
  }
  const bool is_waiting = status.state() == v1::JOB_STATE_PENDING ||
                          status.state() == v1::JOB_STATE_RECOVERING ||
                          status.state() == v1::JOB_STATE_SUSPENDED;
  if (is_waiting && !status.conditions().empty()) {
    absl::StrAppend(&text, "  ", status.conditions().rbegin()->reason());
  }
  if (status.state() == v1::JOB_STATE_SUSPENDED) {
    absl::StrAppend(&text, "; to go on: tessera resume ", Id(job.name()));
  }
  return text;
}

}  // namespace tessera
