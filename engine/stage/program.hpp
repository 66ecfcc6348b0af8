// Programs: lists of instructions over buffers, and where each buffer lies. What a compiled stage is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ppengine/base/ids.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::comm {
class Communicator;
}

namespace ppengine::engine {

// The kinds of memory that an instruction can point into. Bases are set anew for each microbatch.
enum class Region : std::uint8_t {
  activations,    // one block per live microbatch: from F until B or W
  values_in,      // beside it: what the stage before sends
  values_out,     // and what the next stage is sent
  gradients,      // one block per microbatch from its backward's message or I until W
  gradients_in,   // beside it: what the next stage sends
  gradients_out,  // and what the stage before is sent
  workspace,      // while one program runs
  parameters,     // weights in the compute type
  parameter_gradients,
  inputs,     // the microbatch's tokens
  constants,  // rotary tables and the like
  cache,      // keys and values of earlier tokens
  results,    // the microbatch's loss
};
constexpr int region_count = 13;

using BufferId = Id<struct BufferTag>;
constexpr BufferId no_buffer;

struct BufferInfo {
  std::size_t bytes = 0;
  Region region = Region::workspace;
  std::size_t offset = 0;
  bool pinned = false;  // it stays in the activations whoever uses it; the offset is not decided
  bool placed = false;  // region and offset are final
};

using Buffers = IdVector<BufferId, BufferInfo>;

struct Run;
struct Instruction;

// Where the time goes: seconds and calls by what an instruction is. Measuring waits after every instruction.
class Profile {
 public:
  std::function<void(const Instruction&, const Run&)> watch;  // called after each one, when it is done; may be empty
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  void add(const std::string& what, double seconds) {
    Entry& entry = entries_[what];
    entry.seconds += seconds;
    ++entry.calls;
  }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry> entries_;
};

// What an instruction sees when it runs.
struct Run {
  ops::Stream& stream;
  const Buffers& buffers;
  std::byte* base[region_count];
  float loss_weight = 1.0f;              // one over the valid tokens of the global batch
  bool accumulate = false;               // weight gradients: add to what is there
  std::uint64_t dropout_key = 0;         // of this step
  std::int64_t first_sequence = 0;       // number of the microbatch's first sequence in the global batch
  std::int64_t output_row = 0;           // of the microbatch's rows, the one whose output is wanted (CompileOptions::output_row)
  Profile* profile = nullptr;            // null: nothing is measured
  comm::Communicator* tensor = nullptr;  // the tensor-parallel ranks; null: none
  comm::Communicator* data = nullptr;    // the data-parallel ranks, for statistics of their microbatches together; null: each its own
  comm::Communicator* peers = nullptr;   // moves messages between instructions; null: there are none

  void* at(BufferId id) const {
    if (id == no_buffer) return nullptr;
    const BufferInfo& buffer = buffers[id];
    return base[static_cast<int>(buffer.region)] + buffer.offset;
  }
  template <class T>
  T* as(BufferId id) const {
    return static_cast<T*>(at(id));
  }
};

struct Instruction {
  std::string module;  // for errors and profiles
  std::string kind;    // "linear", "linear dX", "linear dW"
  std::vector<BufferId> reads, writes;
  std::function<void(const Run&)> run;
};

using Program = std::vector<Instruction>;

// Called after an instruction has been submitted, with its number.
using AfterInstruction = std::function<void(std::size_t instruction)>;

void execute(const Program& program, const Run& run, const AfterInstruction& after = {});
// Two programs on two streams, submitted by turns, so that the device works on both at once.
void execute_together(const Program& first, const Run& first_run, const Program& second, const Run& second_run,
                      const AfterInstruction& after_second = {});

// Gives every buffer of the programs that is not placed yet its place. A buffer made by one program and used by another goes to the
// region that lives so long; one that a single program uses lies in the workspace, where memory is reused as soon as nobody needs it.
struct Layout {
  std::size_t activations = 0, gradients = 0, workspace = 0;  // bytes of one block each
};
// split: the programs I and W (may be empty); full: B (may be empty).
Layout place_buffers(Buffers& buffers, const Program& forward, const Program& full, const Program& input, const Program& weight);

}  // namespace ppengine::engine
