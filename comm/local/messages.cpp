// Messages between ranks that are threads: the side that comes second trades the memory or starts the copy, after both sides' events.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include <ppengine/comm/local/group.hpp>

namespace ppengine::comm::local {
namespace {

// Below this a copy on the spot is cheaper than a launch.
constexpr std::size_t copied_at_once = 1 << 20;

std::optional<Group::Post> take(std::deque<Group::Post>& posts, int tag) {
  const auto found = std::ranges::find_if(posts, [&](const Group::Post& post) { return post.operation->tag() == tag; });
  if (found == posts.end()) return {};
  std::optional<Group::Post> post(std::move(*found));
  posts.erase(found);
  return post;
}

}  // namespace

std::optional<Group::Post> Group::meet(int from, int to, Post& post, std::deque<Post> Lane::* mine, std::deque<Post> Lane::* theirs) {
  const std::lock_guard lock(world_->signal->mutex);
  if (world_->signal->failure) return {};  // waits end with it; the peer's memory may be gone
  Lane& lane = lanes_[{from, to}];
  auto found = take(lane.*theirs, post.operation->tag());
  if (!found) {
    (lane.*mine).push_back(std::move(post));
    return {};
  }
  for (const OperationPtr& operation : {post.operation, found->operation}) world_->track(operation->rank(), operation);
  return found;
}

void Group::post_send(int from, int to, Post post) {
  if (auto recv = meet(from, to, post, &Lane::sends, &Lane::recvs)) transfer(from, to, std::move(post), std::move(*recv));
}

void Group::post_recv(int from, int to, Post post) {
  if (auto send = meet(from, to, post, &Lane::recvs, &Lane::sends)) transfer(from, to, std::move(*send), std::move(post));
}

void Group::transfer(int from, int to, Post send, Post recv) {
  if (recv.up_to ? send.bytes > recv.bytes : send.bytes != recv.bytes) {
    const std::string error = fmt::format("rank {} sends {} bytes, rank {} receives {}{} bytes", world_rank(from), send.bytes,
                                          world_rank(to), recv.up_to ? "up to " : "", recv.bytes);
    {
      const std::lock_guard lock(world_->signal->mutex);
      send.operation->settle({}, 0, error);
      recv.operation->settle({}, 0, error);
    }
    world_->signal->changed.notify_all();
    return;
  }
  if (send.block && recv.block && send.block->can_trade(*recv.block) && !world_->link.on()) return trade(send, recv);
  const Mover& source = mover(from);
  Mover& target = mover(to);
  const bool host = source.host_accessible() && target.host_accessible();
  if (!world_->link.on()) {
    if (send.bytes == 0 || (host && send.bytes <= copied_at_once && send.after.done() && recv.after.done())) {
      if (send.bytes != 0) std::memcpy(recv.data, send.data, send.bytes);
      return finish(send, recv, {});
    }
    if (target.copies && (host || source.device == target.device))
      return finish(send, recv, target.copies->copy(recv.data, send.data, send.bytes, send.after, recv.after));
  }
  target.worker.add([this, from, to, send = std::move(send), recv = std::move(recv)] {
    send.after.wait();
    recv.after.wait();
    if (mover(from).host_accessible()) {
      mover(to).store(recv.data, send.data, send.bytes);
    } else {
      std::vector<std::byte> host_copy(send.bytes);
      mover(from).fetch(host_copy.data(), send.data, send.bytes);
      mover(to).store(recv.data, host_copy.data(), send.bytes);
    }
    mover(to).pass_link(world_->link, send.bytes);
    finish(send, recv, {});
  });
}

// The receiver waits for what the sender has computed, the sender for what has used the receiver's block before.
void Group::trade(const Post& send, const Post& recv) {
  const auto signal = world_->signal;
  {
    const std::lock_guard lock(signal->mutex);
    send.block->trade(*recv.block);
    send.operation->settle(recv.after, send.bytes);
    recv.operation->settle(send.after, send.bytes);
  }
  signal->changed.notify_all();
}

void Group::finish(const Post& send, const Post& recv, const ops::Event& event) {
  const auto signal = world_->signal;  // once settled, the group may be gone
  {
    const std::lock_guard lock(signal->mutex);
    send.operation->settle(event, send.bytes);
    recv.operation->settle(event, send.bytes);
  }
  signal->changed.notify_all();
}

}  // namespace ppengine::comm::local
