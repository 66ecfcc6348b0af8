// The secret of a run.
#include <ppengine/comm/net/secret.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/hmac.hpp>
#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm::net {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t most_bytes = 4096, fewest_bytes = 8;

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

std::string checked(std::string secret, const std::string& where) {
  if (secret.size() < fewest_bytes || secret.size() > most_bytes)
    throw ConfigError(
        fmt::format("{}: a secret of {} bytes; give {} to {}, the same on all ranks", where, secret.size(), fewest_bytes, most_bytes));
  return secret;
}

// Empty where there is no such file. Others must not be able to read it.
std::string read_private(const fs::path& path) {
  const Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return {};
    throw FileError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  }
  struct stat found{};
  fstat(file.fd(), &found);
  if (!S_ISREG(found.st_mode) || (found.st_mode & 077) != 0)
    throw FileError(fmt::format("{}: others can read the run's secret; chmod 600 it", path.string()));
  std::string text(most_bytes + 1, '\0');
  const ssize_t got = read(file.fd(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return trimmed(std::move(text));
}

}  // namespace

std::string make_secret() { return hex(random_bytes(32)); }

std::string given_secret() {
  if (const char* text = std::getenv("PPENGINE_SECRET")) return checked(text, "PPENGINE_SECRET");
  const char* file = std::getenv("PPENGINE_SECRET_FILE");
  return file ? checked(read_private(file), file) : std::string();
}

std::string user_secret() {
  const char *home = std::getenv("HOME"), *config = std::getenv("XDG_CONFIG_HOME");
  const fs::path folder = (config && *config ? fs::path(config) : fs::path(home ? home : "/nonexistent") / ".config") / "ppengine";
  const fs::path path = folder / "secret";
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  // Ranks start at the same time: one of them makes the file whole under its name, the others read it.
  if (std::string found = read_private(path); !found.empty()) return checked(std::move(found), path.string());
  const fs::path aside = folder / fmt::format("secret.{}", getpid());
  const std::string made = make_secret() + "\n";
  {
    const Socket file(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file || write(file.fd(), made.data(), made.size()) != static_cast<ssize_t>(made.size()))
      throw ConfigError(fmt::format("no secret for this run: {} cannot be written ({}); set PPENGINE_SECRET to the same text on all ranks",
                                    aside.string(), std::strerror(errno)));
  }
  fs::create_hard_link(aside, path, ignored);  // fails where another rank was first
  fs::remove(aside, ignored);
  return checked(read_private(path), path.string());
}

}  // namespace ppengine::comm::net
