// oneCCL and MPI without our layer, to compare with.
#include <ppengine/comm/oneccl/baseline.hpp>

namespace ppengine::comm::oneccl {
namespace {

class RawOneCcl : public Baseline {
 public:
  explicit RawOneCcl(ccl::communicator comm) : comm_(std::move(comm)) {}
  std::string name() const override { return "oneCCL"; }
  void send(const void* data, std::size_t bytes, int peer) override {
    ccl::send(const_cast<void*>(data), bytes, ccl::datatype::uint8, peer, comm_).wait();
  }
  void recv(void* data, std::size_t bytes, int peer) override { ccl::recv(data, bytes, ccl::datatype::uint8, peer, comm_).wait(); }
  void exchange(const void* out, void* in, std::size_t bytes, int peer) override {
    auto received = ccl::recv(in, bytes, ccl::datatype::uint8, peer, comm_);
    auto sent = ccl::send(const_cast<void*>(out), bytes, ccl::datatype::uint8, peer, comm_);
    bool in_done = false, out_done = false;  // whichever is waited for alone would hold up the other
    while (!in_done || !out_done) {
      in_done = in_done || received.test();
      out_done = out_done || sent.test();
    }
  }
  void allreduce(float* data, std::size_t count) override {
    ccl::allreduce(data, data, count, ccl::datatype::float32, ccl::reduction::sum, comm_).wait();
  }

 private:
  ccl::communicator comm_;
};

class RawMpi : public Baseline {
 public:
  explicit RawMpi(MPI_Comm comm) : comm_(comm) {}
  ~RawMpi() override { MPI_Comm_free(&comm_); }
  std::string name() const override { return "MPI"; }
  void send(const void* data, std::size_t bytes, int peer) override { MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, peer, 0, comm_); }
  void recv(void* data, std::size_t bytes, int peer) override {
    MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, peer, 0, comm_, MPI_STATUS_IGNORE);
  }
  void exchange(const void* out, void* in, std::size_t bytes, int peer) override {
    const int count = static_cast<int>(bytes);
    MPI_Sendrecv(out, count, MPI_BYTE, peer, 0, in, count, MPI_BYTE, peer, 0, comm_, MPI_STATUS_IGNORE);
  }
  void allreduce(float* data, std::size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm_);
  }

 private:
  MPI_Comm comm_;
};

}  // namespace

std::unique_ptr<Baseline> raw_oneccl(ccl::communicator comm) { return std::make_unique<RawOneCcl>(std::move(comm)); }
std::unique_ptr<Baseline> raw_mpi(MPI_Comm comm) { return std::make_unique<RawMpi>(comm); }

}  // namespace ppengine::comm::oneccl
