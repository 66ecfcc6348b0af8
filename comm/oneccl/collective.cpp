// One collective between CPU processes.
#include <ppengine/comm/oneccl/collective.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <ppengine/comm/oneccl/forever.hpp>

namespace ppengine::comm::oneccl {
namespace {

using Kind = CollectiveCall::Kind;

// Up to so many bytes a sum is MPI's own, which oneCCL would also call, 3 us later.
constexpr std::size_t largest_by_mpi = std::size_t{1} << 20;

// A larger sum is made in pieces of so many bytes: the MPI library takes memory of that size for each, which the system hands out anew,
// page by page, from 32 MiB on.
constexpr std::size_t largest_piece = std::size_t{24} << 20;

ccl::datatype to_ccl(Type type) {
  switch (static_cast<Type::Value>(type)) {
    case Type::f32:
      return ccl::datatype::float32;
    case Type::bf16:
      return ccl::datatype::bfloat16;
    case Type::f16:
      return ccl::datatype::float16;
    case Type::f64:
      return ccl::datatype::float64;
    case Type::i32:
      return ccl::datatype::int32;
    case Type::i64:
      return ccl::datatype::int64;
    case Type::u8:
      break;
  }
  return ccl::datatype::uint8;
}

ccl::reduction to_ccl(Reduce reduce) {
  return reduce == Reduce::sum ? ccl::reduction::sum : reduce == Reduce::max ? ccl::reduction::max : ccl::reduction::min;
}

// None for types that MPI does not know.
MPI_Datatype to_mpi(Type type) {
  switch (static_cast<Type::Value>(type)) {
    case Type::f32:
      return MPI_FLOAT;
    case Type::f64:
      return MPI_DOUBLE;
    case Type::i32:
      return MPI_INT32_T;
    case Type::i64:
      return MPI_INT64_T;
    case Type::u8:
      return MPI_UINT8_T;
    case Type::bf16:
    case Type::f16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op to_mpi(Reduce reduce) { return reduce == Reduce::sum ? MPI_SUM : reduce == Reduce::max ? MPI_MAX : MPI_MIN; }

std::size_t piece_count(const CollectiveCall& call) {
  return call.kind == Kind::allreduce ? std::min(call.count, largest_piece / call.type.size()) : call.count;
}

}  // namespace

Collective::Collective(Engine& engine, const CollectiveCall& call, const void* in, void* out, int rank, ops::Event after,
                       std::chrono::milliseconds timeout)
    : Operation(engine, call.name(), rank, -1, -1, call.bytes(), std::move(after), timeout),
      call_(call),
      in_(in),
      out_(out),
      piece_count_(piece_count(call)),
      pieces_(call.count == 0 ? 1 : (call.count + piece_count_ - 1) / piece_count_),
      call_before_(call),
      by_mpi_(call.kind == Kind::allreduce && call.bytes() <= largest_by_mpi && to_mpi(call.type) != MPI_DATATYPE_NULL) {}

void Collective::begin(const Place& place) {
  place_ = place;
  const int ranks = static_cast<int>(place.members.size());
  if (ranks > 1) {
    const int behind = (place.index + 1) % ranks;
    check(MPI_Irecv(&call_before_, sizeof(call_before_), MPI_BYTE, before(), collectives_tag, place.mpi, &comparison_[0]));
    check(MPI_Isend(&call_, sizeof(call_), MPI_BYTE, behind, collectives_tag, place.mpi, &comparison_[1]));
  }
  begin_piece();
  begun_ = true;
}

void Collective::begin_piece() {
  if (call_.count == 0) return;
  if (by_mpi_) {
    check(MPI_Iallreduce(in_ == out_ ? MPI_IN_PLACE : in_, out_, static_cast<int>(call_.count), to_mpi(call_.type), to_mpi(call_.reduce),
                         place_.mpi, &request_));
    return;
  }
  ccl::communicator& comm = *place_.data;
  const ccl::datatype type = to_ccl(call_.type);
  switch (call_.kind) {
    case Kind::allreduce: {
      const std::size_t begin = piece_ * piece_count_, at = begin * call_.type.size();
      event_ = ccl::allreduce(static_cast<const std::byte*>(in_) + at, static_cast<std::byte*>(out_) + at,
                              std::min(piece_count_, call_.count - begin), type, to_ccl(call_.reduce), comm);
      return;
    }
    case Kind::reduce_scatter:
      event_ = ccl::reduce_scatter(in_, out_, call_.count, type, to_ccl(call_.reduce), comm);
      return;
    case Kind::all_gather:
      event_ = ccl::allgather(in_, out_, call_.count, type, comm);
      return;
    case Kind::broadcast:
      event_ = ccl::broadcast(out_, call_.count, type, call_.root, comm);
      return;
  }
}

void Collective::step() {
  // First: the libraries have little to say about a call that differs.
  if (!agreed_) compare_calls();
  if (!agreed_ || !moved()) return;
  if (all_begun()) return finish(bytes());
  ++piece_;
  begin_piece();
}

bool Collective::moved() {
  if (call_.count == 0) return true;
  if (!by_mpi_) return event_.test();
  int came = 0;
  check(MPI_Test(&request_, &came, MPI_STATUS_IGNORE));
  return came != 0;
}

void Collective::compare_calls() {
  int came = 0;
  check(MPI_Testall(2, comparison_, &came, MPI_STATUSES_IGNORE));
  if (came == 0) return;
  if (call_ == call_before_) {
    agreed_ = true;
    return;
  }
  const auto rank = [&](int index) { return place_.members[static_cast<std::size_t>(index)]; };
  const std::string error =
      fmt::format("rank {} called {}, rank {} called {}", rank(before()), call_before_.text(), rank(place_.index), call_.text());
  keep_forever(std::move(event_));
  place_.rendezvous->abort(error);
  fail(error);
}

std::string Collective::key() const { return fmt::format("{} collective {} waits", *place_.group, place_.number); }

void Collective::linger() {
  if (begun_) place_.rendezvous->announce(key(), place_.members, place_.index);
}

std::string Collective::awaited() {
  if (!begun_) return "the work before it has not finished";
  return fmt::format("not there: rank {}", fmt::join(place_.rendezvous->missing(key(), place_.members), ", "));
}

}  // namespace ppengine::comm::oneccl
