// Errors by audience. Each text says what was wrong, where, and what to do; the command line maps the type to an exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace ppengine {

// The exit codes (docs/command_line.md).
enum class ExitCode : int { ok = 0, failed = 1, usage = 2, no_device = 3, peer_lost = 4, interrupted = 130 };

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = ExitCode::failed) : std::runtime_error(what), code_(code) {}
  ExitCode exit_code() const { return code_; }
  // Where in a plan it happened, "rank 2, plan position 17, 2RECV_F5", which the text says too; empty: outside of one.
  const std::string& position() const { return position_; }
  void set_position(std::string position) { position_ = std::move(position); }

 private:
  ExitCode code_;
  std::string position_;
};

// A flag, setting, plan, split or shape that cannot be carried out.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& what) : Error(what, ExitCode::usage) {}
};

// A file that is missing, broken or hostile. The text starts with the file's path.
class FileError : public Error {
 public:
  explicit FileError(const std::string& what) : Error(what, ExitCode::usage) {}
};

// No such device, or the device failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& what, ExitCode code = ExitCode::no_device) : Error(what, code) {}
};

// A message to or from a peer that did not arrive in time, or a peer that is gone. Collectives have no tag and not always a peer: -1.
class CommError : public Error {
 public:
  CommError(int peer, const std::string& operation, int tag, const std::string& reason);
  int peer() const { return peer_; }
  const std::string& operation() const { return operation_; }
  int tag() const { return tag_; }
  const std::string& reason() const { return reason_; }  // without peer, operation and tag

 private:
  int peer_;
  std::string operation_;
  int tag_;
  std::string reason_;
};

// A broken invariant of ours: never the user's fault.
[[noreturn]] void invariant_failed(const char* condition, const char* file, int line);

}  // namespace ppengine

#define PPENGINE_ASSERT(condition) ((condition) ? void(0) : ::ppengine::invariant_failed(#condition, __FILE__, __LINE__))
