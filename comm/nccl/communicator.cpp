// The communicator over lanes: one rank's view of a group of devices.
#include <ppengine/comm/nccl/communicator.hpp>

#include <fmt/core.h>

#include <map>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/collective_call.hpp>
#include <ppengine/comm/nccl/lane.hpp>

namespace ppengine::comm::nccl {
namespace {

int to_nccl(Type type) {
  switch (static_cast<Type::Value>(type)) {
    case Type::f32:
      return float32;
    case Type::bf16:
      return bfloat16;
    case Type::f16:
      return float16;
    case Type::f64:
      return float64;
    case Type::i32:
      return int32;
    case Type::i64:
      return int64;
    case Type::u8:
      break;
  }
  return uint8;
}
int to_nccl(Reduce reduce) { return reduce == Reduce::sum ? sum : reduce == Reduce::max ? max : min; }

class NcclCommunicator : public ProcessCommunicator {
 public:
  NcclCommunicator(const Api& api, std::string kind, std::shared_ptr<ops::Device> device, std::shared_ptr<Rendezvous> meeting,
                   std::shared_ptr<Lanes> all_lanes, const std::string& group, std::vector<int> ranks, int index)
      : ProcessCommunicator(std::move(meeting), group, std::move(ranks), index),
        api_(api),
        kind_(std::move(kind)),
        device_(std::move(device)),
        all_lanes_(std::move(all_lanes)) {}

  std::string kind() const override { return kind_; }

  // The ranks are told first: a call whose kernel was ended must not look like one that was carried out.
  void abort(const std::string& reason) override {
    ProcessCommunicator::abort(reason);
    all_lanes_->wait_until_stopped();
  }

  Pending send(const void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return one(Message::send(data, bytes, peer, tag), false, after);
  }
  Pending recv(void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return one(Message::recv(data, bytes, peer, tag), false, after);
  }
  Pending recv_up_to(void* data, std::size_t capacity, int peer, int tag, const After& after) override {
    return one(Message::recv(data, capacity, peer, tag), true, after);
  }

  // Messages of one lane go to NCCL as one group.
  Pending exchange(std::span<const Message> messages, const After& after) override {
    std::map<Lane*, std::vector<CallPtr>> by_lane;
    std::vector<Pending> parts;
    for (const Message& message : messages) {
      const auto call = make_call(message, false, after, true);
      by_lane[&lane(message)].push_back(call);
      parts.emplace_back(call);
    }
    for (auto& [lane, calls] : by_lane) lane->add(std::move(calls));
    return Pending::all(std::move(parts));
  }

  Pending collective(const CollectiveCall& call, const void* in, void* out, const After& after) override {
    check_alive(call.name(), -1, -1);
    if (!collectives_)
      collectives_ = std::make_unique<Lane>(api_, device_, rendezvous(), all_lanes_, fmt::format("nccl {} all", name()), members(), rank());
    auto agree = [ranks = members()](const std::vector<std::string>& claims, std::size_t&) -> std::string {
      for (std::size_t r = 1; r < claims.size(); ++r)
        if (claims[r] != claims[0]) return fmt::format("rank {} called {}, rank {} called {}", ranks[0], claims[0], ranks[r], claims[r]);
      return {};
    };
    auto submit = [=, this](Comm comm, NativeStream stream, std::size_t) {
      if (call.count > 0) api_.check(submit_collective(call, in, out, comm, stream), call.name());
    };
    auto one = std::make_shared<Call>(Call::Text{call.name(), world_rank(rank()), -1, -1}, after.event(), call.text(), agree,
                                      std::move(submit), call.bytes(), rendezvous(), timeout());
    collectives_->add({one});
    return Pending(one);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const Subgroup group = agree_on_split(color, key);
    if (group.index < 0) return nullptr;
    auto result =
        std::make_unique<NcclCommunicator>(api_, kind_, device_, rendezvous(), all_lanes_, group.name, group.members, group.index);
    result->set_timeout(timeout());
    return result;
  }

 private:
  // Each direction between two ranks has its own lane, and a message to oneself has one too.
  Lane& lane(const Message& message) {
    const bool sends = message.kind == Message::Kind::send;
    const int from = sends ? rank() : message.peer, to = sends ? message.peer : rank();
    auto& found = lanes_[{from, to}];
    if (!found) {
      std::vector<int> both{world_rank(from)};
      if (from != to) both.push_back(world_rank(to));
      found = std::make_unique<Lane>(api_, device_, rendezvous(), all_lanes_, fmt::format("nccl {} {}-{}", name(), from, to), both,
                                     sends ? 0 : static_cast<int>(both.size()) - 1);
    }
    return *found;
  }

  CallPtr make_call(const Message& message, bool up_to, const After& after, bool in_batch) {
    const bool sends = message.kind == Message::Kind::send;
    const char* operation = sends ? "send" : "recv";
    check_peer(message.peer, operation);
    check_alive(operation, message.peer, message.tag);
    if (api_.no_messages) throw ConfigError(api_.no_messages);
    if (message.peer == rank() && !in_batch)
      throw ConfigError(std::string(api_.name) + ": a rank cannot send to itself outside of a batch; copy the memory instead");
    const int from = world_rank(sends ? rank() : message.peer), to = world_rank(sends ? message.peer : rank());
    auto agree = [=, library = api_.name](const std::vector<std::string>& claims, std::size_t& bytes) -> std::string {
      if (claims.size() == 1) return {};  // to oneself
      net::Unpacker sender(claims[0]), receiver(claims[1]);
      const std::int64_t send_tag = sender.number(), send_bytes = sender.number(), recv_tag = receiver.number(),
                         recv_bytes = receiver.number();
      sender.number();
      const bool any = receiver.number() != 0;
      if (send_tag != recv_tag)
        return fmt::format("rank {} sends tag {}, rank {} receives tag {}: {} has no tags, both sides must post in the same order", from,
                           send_tag, to, recv_tag, library);
      if (any ? send_bytes > recv_bytes : send_bytes != recv_bytes)
        return fmt::format("rank {} sends {} bytes, rank {} receives {}{} bytes", from, send_bytes, to, any ? "up to " : "", recv_bytes);
      bytes = static_cast<std::size_t>(send_bytes);
      return {};
    };
    const int other = message.peer == rank() ? 0 : sends ? 1 : 0;
    auto submit = [=, this, data = message.data](Comm comm, NativeStream stream, std::size_t bytes) {
      if (bytes == 0) return;
      api_.check(sends ? api_.Send(data, bytes, uint8, other, comm, stream) : api_.Recv(data, bytes, uint8, other, comm, stream),
                 sends ? "send" : "recv");
    };
    return std::make_shared<Call>(
        Call::Text{operation, world_rank(rank()), world_rank(message.peer), message.tag}, after.event(),
        net::Packer().number(message.tag).number(static_cast<std::int64_t>(message.bytes)).number(up_to ? 1 : 0).bytes(), agree, submit,
        message.bytes, rendezvous(), timeout());
  }

  Pending one(const Message& message, bool up_to, const After& after) {
    auto call = make_call(message, up_to, after, false);
    lane(message).add({call});
    return Pending(call);
  }

  Result submit_collective(const CollectiveCall& call, const void* in, void* out, Comm comm, NativeStream stream) const {
    const int type = to_nccl(call.type), reduce = to_nccl(call.reduce);
    switch (call.kind) {
      case CollectiveCall::Kind::allreduce:
        return api_.AllReduce(in, out, call.count, type, reduce, comm, stream);
      case CollectiveCall::Kind::reduce_scatter:
        return api_.ReduceScatter(in, out, call.count, type, reduce, comm, stream);
      case CollectiveCall::Kind::all_gather:
        return api_.AllGather(in, out, call.count, type, comm, stream);
      case CollectiveCall::Kind::broadcast:
        break;
    }
    return api_.Broadcast(in, out, call.count, type, call.root, comm, stream);
  }

  const Api& api_;
  const std::string kind_;
  std::shared_ptr<ops::Device> device_;
  std::shared_ptr<Lanes> all_lanes_;
  std::map<std::pair<int, int>, std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<Lane> collectives_;
};

}  // namespace

Communicator* make_communicator(const Api& api, const std::string& kind, const ModuleInput& input) {
  std::vector<int> all(static_cast<std::size_t>(input.environment.size));
  std::iota(all.begin(), all.end(), 0);
  auto lanes = std::make_shared<Lanes>();
  input.rendezvous->on_failure([lanes] { lanes->wait_until_stopped(); });
  return new NcclCommunicator(api, kind, input.options.device, input.rendezvous, lanes, "world", all, input.environment.rank);
}

}  // namespace ppengine::comm::nccl
