#include "worker/comm/cpu_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/control_channel.h"
#include "worker/comm/group_communicator.h"
#include "worker/comm/join.h"
#include "worker/comm/socket_dir.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<CpuTransport>> CpuTransport::Create(
    CpuDevice& device, const CpuTransportOptions& options) {
  if (options.socket_dir.empty() && options.tcp_ip.empty()) {
    return absl::InvalidArgumentError("transport with neither socket directory nor TCP address");
  }
  absl::StatusOr<std::string> instance = RandomInstance();
  if (!instance.ok()) return instance.status();
  Endpoint own{.host_id = *instance, .instance = *instance, .socket_name = "-", .tcp_ip = "-"};
  UniqueFd unix_listener, tcp_listener;
  std::shared_ptr<TcpDevice> tcp;
  if (!options.socket_dir.empty()) {
    if (absl::Status status = PrepareSocketDir(options.socket_dir); !status.ok()) return status;
    absl::StatusOr<std::string> host_id = HostId(options.socket_dir, options.host_label);
    if (!host_id.ok()) return host_id.status();
    own.host_id = *host_id;
    own.socket_name = *instance + ".sock";
    auto fd = ListenUnix(absl::StrCat(options.socket_dir, "/", own.socket_name));
    if (!fd.ok()) return fd.status();
    unix_listener = *std::move(fd);
  }
  if (!options.tcp_ip.empty()) {
    own.tcp_ip = options.tcp_ip;
    auto fd = ListenTcp(options.tcp_ip, &own.tcp_port);
    if (!fd.ok()) return fd.status();
    tcp_listener = *std::move(fd);
    auto device = TcpDevice::Create(options.tcp_ip);
    if (!device.ok()) return device.status();
    tcp = *std::move(device);
  }
  auto rendezvous =
      Rendezvous::Create(std::move(unix_listener), std::move(tcp_listener), *instance);
  if (!rendezvous.ok()) return rendezvous.status();
  return std::unique_ptr<CpuTransport>(new CpuTransport(device, options.socket_dir, std::move(own),
                                                        std::move(tcp), *std::move(rendezvous)));
}

CpuTransport::CpuTransport(CpuDevice& device, std::string socket_dir, Endpoint own,
                           std::shared_ptr<TcpDevice> tcp, std::unique_ptr<Rendezvous> rendezvous)
    : device_(device),
      socket_dir_(std::move(socket_dir)),
      own_(std::move(own)),
      tcp_(std::move(tcp)),
      rendezvous_(std::move(rendezvous)) {}

CpuTransport::~CpuTransport() {
  if (own_.socket_name != "-") unlink(absl::StrCat(socket_dir_, "/", own_.socket_name).c_str());
}

void CpuTransport::AbortJoins(absl::string_view job_uid, int64_t epoch,
                              const absl::Status& reason) {
  rendezvous_->AbortJoins(job_uid, epoch, reason);
}

// One join: meets every other member once and collects what the communicator needs.
class CpuTransport::Joining {
 public:
  Joining(CpuTransport& transport, const GroupSpec& spec) : transport_(transport), spec_(spec) {}
  absl::StatusOr<Membership> Run();

 private:
  int self() const { return spec_.group_rank; }
  int size() const { return static_cast<int>(spec_.members.size()); }
  bool IsMapped(int member) const {
    return endpoints_[member].host_id == endpoints_[self()].host_id;
  }

  absl::Status ParseEndpoints();
  absl::Status CreateBoard();
  absl::Status AttachBoard(const UniqueFd& memfd);
  absl::Status MeetAll();
  absl::Status Visit(int member);
  absl::Status Receive(Meeting::Visitor visitor);
  // What this member gives to that one: memory, or where it waits for its TCP connection.
  absl::Status Give(int member, const std::string& greeting, const UniqueFd& fd);
  absl::Status Attach(int member, const Frame& theirs, UniqueFd fd);
  absl::Status ConnectLinks();
  std::string Missing() const;

  CpuTransport& transport_;
  const GroupSpec& spec_;
  std::vector<Endpoint> endpoints_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<bool> met_;
  int board_owner_ = 0;  // lowest rank of this host
  UniqueFd board_fd_;    // the owner's
  std::unique_ptr<TcpMesh> mesh_;
  std::vector<std::string> link_addresses_;  // own, by member; empty until given
  std::vector<std::string> peer_addresses_;  // the members' for this one
  Membership membership_;
};

absl::StatusOr<std::unique_ptr<Communicator>> CpuTransport::Join(const GroupSpec& spec) {
  absl::Status status = CheckSpec(spec, address());
  if (!status.ok()) return JoinError(spec, status);
  absl::StatusOr<Membership> membership = Joining(*this, spec).Run();
  if (!membership.ok()) return JoinError(spec, membership.status());
  return std::make_unique<GroupCommunicator>(*std::move(membership));
}

absl::StatusOr<Membership> CpuTransport::Joining::Run() {
  if (absl::Status status = ParseEndpoints(); !status.ok()) return status;
  membership_.spec = spec_;
  membership_.device = &transport_.device_;
  membership_.own = {reinterpret_cast<char*>(transport_.device_.base_address()),
                     transport_.device_.mapped_bytes(), nullptr};
  membership_.peers.resize(size());
  link_addresses_.resize(size());
  peer_addresses_.resize(size());
  met_.assign(size(), false);
  met_[self()] = true;
  if (absl::Status status = CreateBoard(); !status.ok()) return status;
  auto meeting = transport_.rendezvous_->Open(spec_, endpoints_);
  if (!meeting.ok()) return meeting.status();
  meeting_ = *std::move(meeting);
  absl::Status status = MeetAll();
  if (status.ok()) status = ConnectLinks();
  if (absl::Status reason = meeting_->cancelled(); !reason.ok()) return reason;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("waited ", absl::FormatDuration(spec_.timeout), " for ", Missing()));
  }
  if (!status.ok()) return status;
  return std::move(membership_);
}

absl::Status CpuTransport::Joining::ParseEndpoints() {
  for (int member = 0; member < size(); ++member) {
    absl::StatusOr<Endpoint> endpoint = Endpoint::Parse(spec_.members[member].address);
    if (!endpoint.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(MemberName(spec_, member), ": ", endpoint.status().message()));
    }
    endpoints_.push_back(*std::move(endpoint));
  }
  for (int member = 0; member < size(); ++member) {
    if (IsMapped(member)) continue;
    if (endpoints_[member].tcp_ip == "-" || endpoints_[self()].tcp_ip == "-") {
      return absl::InvalidArgumentError(
          absl::StrCat(MemberName(spec_, member), " shares no memory with ",
                       MemberName(spec_, self()), ", and not both have a TCP address"));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuTransport::Joining::CreateBoard() {
  std::vector<int> mapped;
  for (int member = 0; member < size(); ++member) {
    if (IsMapped(member)) mapped.push_back(member);
  }
  board_owner_ = mapped.front();
  if (mapped.size() == 1 || board_owner_ != self()) return absl::OkStatus();
  absl::StatusOr<UniqueFd> fd = CreateSharedMemory(Board::SizeBytes(size()));
  if (!fd.ok()) return fd.status();
  board_fd_ = *std::move(fd);
  return AttachBoard(board_fd_);
}

absl::Status CpuTransport::Joining::AttachBoard(const UniqueFd& memfd) {
  absl::StatusOr<Region> region = MapSharedMemory(memfd);
  if (!region.ok()) return region.status();
  if (region->size_bytes != Board::SizeBytes(size())) {
    return absl::InvalidArgumentError("the board has another size: members disagree on the group");
  }
  membership_.board.reset(new SharedBoard{Board(region->base, size()), region->mapping});
  return absl::OkStatus();
}

absl::Status CpuTransport::Joining::MeetAll() {
  for (int member = 0; member < self(); ++member) {
    if (absl::Status status = Visit(member); !status.ok()) return status;
  }
  while (std::find(met_.begin(), met_.end(), false) != met_.end()) {
    absl::StatusOr<Meeting::Visitor> visitor = meeting_->NextVisitor();
    if (!visitor.ok()) return visitor.status();
    absl::Status status = Receive(*std::move(visitor));
    // A visitor that went away again comes back.
    if (!status.ok() && !absl::IsUnavailable(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status CpuTransport::Joining::Visit(int member) {
  while (true) {
    Frame welcome;
    auto fd = meeting_->Visit(member, IsMapped(member), transport_.socket_dir_, &welcome);
    if (!fd.ok()) {
      if (absl::IsDeadlineExceeded(fd.status()) || absl::IsCancelled(fd.status())) {
        return fd.status();
      }
      return absl::Status(fd.status().code(),
                          absl::StrCat(MemberName(spec_, member), ": ", fd.status().message()));
    }
    absl::Status status = Give(member, "gift", *fd);
    if (status.ok()) status = Attach(member, welcome, *std::move(fd));
    if (status.ok() || !absl::IsUnavailable(status)) return status;
  }
}

absl::Status CpuTransport::Joining::Receive(Meeting::Visitor visitor) {
  absl::Status status = Give(visitor.member, "welcome", visitor.fd);
  if (!status.ok()) return status;
  absl::StatusOr<Frame> gift = RecvFrame(visitor.fd.get(), meeting_->patience());
  if (!gift.ok()) return gift.status();
  return Attach(visitor.member, *gift, std::move(visitor.fd));
}

absl::Status CpuTransport::Joining::Give(int member, const std::string& greeting,
                                         const UniqueFd& fd) {
  if (IsMapped(member)) {
    std::vector<int> fds = {transport_.device_.memfd()};
    if (board_fd_.is_open()) fds.push_back(board_fd_.get());
    return SendFrame(fd.get(), greeting, fds, meeting_->patience());
  }
  if (mesh_ == nullptr) {
    auto mesh = TcpMesh::Create(transport_.tcp_, self(), size());
    if (!mesh.ok()) return mesh.status();
    mesh_ = *std::move(mesh);
  }
  if (link_addresses_[member].empty()) {
    absl::StatusOr<std::string> address = mesh_->Prepare(member);
    if (!address.ok()) return absl::ResourceExhaustedError(address.status().message());
    link_addresses_[member] = *std::move(address);
  }
  return SendFrame(fd.get(), absl::StrCat(greeting, "\n", link_addresses_[member]), {},
                   meeting_->patience());
}

absl::Status CpuTransport::Joining::ConnectLinks() {
  for (int member = 0; member < size(); ++member) {
    if (IsMapped(member)) continue;
    auto link = mesh_->Connect(member, peer_addresses_[member]);
    if (!link.ok()) return GoneError(spec_, member, link.status());
    membership_.peers[member].link = *std::move(link);
  }
  return absl::OkStatus();
}

absl::Status CpuTransport::Joining::Attach(int member, const Frame& theirs, UniqueFd fd) {
  if (!IsMapped(member)) {
    const size_t line = theirs.text.find('\n');
    if (line == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(MemberName(spec_, member), " gave no address"));
    }
    peer_addresses_[member] = theirs.text.substr(line + 1);
    membership_.peers[member].watch = std::make_unique<ControlChannel>(std::move(fd));
    met_[member] = true;
    return absl::OkStatus();
  }
  if (theirs.fds.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(MemberName(spec_, member), " gave no memory"));
  }
  absl::StatusOr<Region> region =
      transport_.arenas_.Map(endpoints_[member].instance, theirs.fds[0]);
  if (!region.ok()) return region.status();
  if (member == board_owner_) {
    if (theirs.fds.size() < 2) {
      return absl::InvalidArgumentError(absl::StrCat(MemberName(spec_, member), " gave no board"));
    }
    if (absl::Status status = AttachBoard(theirs.fds[1]); !status.ok()) return status;
  }
  membership_.peers[member].region = *std::move(region);
  membership_.peers[member].watch = std::make_unique<ControlChannel>(std::move(fd));
  met_[member] = true;
  return absl::OkStatus();
}

std::string CpuTransport::Joining::Missing() const {
  std::vector<std::string> missing;
  for (int member = 0; member < size(); ++member) {
    if (!met_[member]) missing.push_back(MemberName(spec_, member));
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace tessera
