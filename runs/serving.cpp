// Serving: a model folder behind HTTP.
#include <ppengine/runs/serving.hpp>

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/launch/stop_signals.hpp>
#include <ppengine/comm/local.hpp>
#include <ppengine/comm/mesh.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/runs/constraint/token_trie.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/generator/adapters.hpp>
#include <ppengine/runs/serving/embedder.hpp>
#include <ppengine/runs/serving/service.hpp>

namespace ppengine::runs {
namespace {

constexpr std::int64_t default_sequences = 8;  // per rank; the kernels of few rows take as many
constexpr std::int64_t default_context = 4096, chunk = 128;
constexpr std::size_t long_body = std::size_t{256} << 10;

std::string name_of(const ServingOptions& options) {
  if (!options.name.empty()) return options.name;
  std::filesystem::path path(options.model);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  return path.filename().string();
}

// ConfigError where its tokens are not the model's.
models::ModelSource open_draft(const std::string& folder, const models::ModelSource& model) {
  models::ModelSource draft = models::open_model(folder);
  const auto own = draft.tokenizer(), other = model.tokenizer();
  const std::int64_t sizes[] = {draft.config.vocabulary(), model.config.vocabulary()};
  if (!own || !other) {
    if (sizes[0] != sizes[1]) throw ConfigError(fmt::format("--draft {}: it has {} tokens, and the model {}", folder, sizes[0], sizes[1]));
    return draft;
  }
  for (std::int32_t id = 0; id < std::min(sizes[0], sizes[1]); ++id)
    if (own->id_to_token(id) != other->id_to_token(id))
      throw ConfigError(fmt::format("--draft {}: token {} is '{}' there and '{}' for the model: a draft must have the model's tokenizer",
                                    folder, id, own->id_to_token(id).value_or(""), other->id_to_token(id).value_or("")));
  return draft;
}

// What ends a server, for as long as this lives; blocked in all threads that are started meanwhile.
class EndSignals {
 public:
  EndSignals() {
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    fd_ = signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~EndSignals() {
    if (fd_ >= 0) close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndSignals(const EndSignals&) = delete;

  bool wait(int milliseconds) const {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, milliseconds) <= 0) return false;
    signalfd_siginfo info{};
    return read(fd_, &info, sizeof(info)) == sizeof(info);
  }

 private:
  sigset_t set_ = comm::stop_signals(), before_{};
  int fd_ = -1;
};

}  // namespace

ServingRun::ServingRun(ServingOptions options)
    : options_(std::move(options)), source_(open_model_with_adapters(options_.model, options_.adapters)) {
  if (options_.weights) check(*options_.weights, options_.parallel);
  check_adapters(source_, options_.parallel);
  if (options_.parallel.data != 1)
    throw ConfigError("--dp: a server has one copy of the model; use --pp or --tp, or start several servers");
  if (!options_.draft.empty()) draft_ = open_draft(options_.draft, source_);
  if (source_.folder) static_cast<void>(models::ChatTemplate::load(*source_.folder));  // refuses what it cannot carry out
  static_cast<void>(source_.tokenizer());
  how_ = generator_options();
}

GeneratorOptions ServingRun::generator_options() const {
  const std::int64_t ranks = options_.parallel.pipeline, positions = source_.config.positions();
  GeneratorOptions how;
  how.capacity = options_.context > 0 ? options_.context : std::min(positions, default_context);
  if (how.capacity > positions) throw ConfigError(fmt::format("--context {}: the model's own context is {}", how.capacity, positions));
  const std::int64_t sequences = options_.max_sequences > 0 ? options_.max_sequences : default_sequences * ranks;
  // Groups of at most 8, for which there are kernels whose results do not depend on how many they are; as many groups as ranks at least.
  const std::int64_t groups = std::min(sequences, std::max(ranks, (sequences + default_sequences - 1) / default_sequences));
  how.groups = static_cast<int>(groups);
  how.sequences = std::max<std::int64_t>(1, sequences / groups);
  how.chunk = chunk;
  how.interleaved = true;
  how.lookup = options_.lookup;
  how.adapters = graph_with_adapters(source_).masks;
  // A layer with a window keeps its last tokens only: what a prompt had at its beginning is gone when it ends.
  how.cache_in_bytes = options_.cache_in_bytes;
  const std::vector<CacheBytes> bytes = cache_bytes(source_, options_.parallel, how);
  how.reuse = std::ranges::all_of(bytes, [](const CacheBytes& rank) { return rank.place == 0; });
  if (options_.cache_memory > 0) fit_cache(bytes, options_.cache_memory, how);
  return how;
}

void ServingRun::run(comm::Communicator& world) const {
  const EndSignals signals;  // before any thread is started: they come to whoever waits for them
  const comm::Mesh mesh(world, options_.parallel.mesh());
  const auto model =
      load_for_inference(source_, options_.parallel, mesh.pipeline(), options_.weight_seed, options_.weights, mesh.place().tensor);
  GeneratorOptions how = how_;
  if (options_.parallel.tensor > 1) how.tensor = &mesh.tensor();
  std::optional<constraint::TokenTrie> tokens;  // where they are chosen
  if (const auto tokenizer = source_.tokenizer(); tokenizer && mesh.pipeline().rank() + 1 == mesh.pipeline().size())
    how.tokens = &tokens.emplace(*tokenizer);
  std::vector<std::unique_ptr<comm::Communicator>> alone;
  std::unique_ptr<engine::ModelRank> draft;
  if (draft_ && world.rank() == 0) {
    comm::LocalOptions local;
    local.devices = {model->device()};
    alone = comm::make_local(1, local);
    engine::ParallelOptions whole;
    whole.device = model->device();
    draft = load_for_inference(*draft_, whole, *alone.front(), options_.weight_seed, options_.weights);
    how.draft = draft.get();
    how.draft_capacity = std::min(how.capacity, draft_->config.positions());
  }
  Generator generator(*model, how, mesh.pipeline());
  generator.prepare(std::min<std::int64_t>(2 * chunk, how.capacity));
  generator.prepare_steps();
  world.barrier();
  if (world.rank() != 0) return generator.serve();

  serving::ServiceOptions service_options;
  service_options.model = name_of(options_);
  service_options.aliases = {options_.model};
  for (const models::NamedAdapter& adapter : source_.adapters) service_options.adapters.push_back(adapter.name);
  service_options.api_key = options_.api_key;
  service_options.max_queue = options_.max_queue;
  service_options.max_per_client = options_.max_per_client;
  service_options.capacity = how.capacity;
  serving::Embedder embedder(source_, options_.parallel.device, options_.weight_seed);
  serving::Service service(service_options, source_, generator, [&](const std::vector<serving::Ids>& ids, bool last, int adapter) {
    return embedder.embed(ids, last, adapter);
  });
  serving::HttpOptions http;
  http.host = options_.host;
  http.port = options_.port;
  http.max_body = static_cast<std::size_t>(options_.max_body);
  http.max_connections = static_cast<std::size_t>(options_.max_connections);
  // Long texts take long to read: they must not keep all workers from short ones.
  http.is_slow = [](const serving::HttpRequest& request) { return request.path == "/v1/embeddings" || request.body.size() > long_body; };
  serving::HttpServer server(
      http, [&](const serving::HttpRequest& request, const std::shared_ptr<serving::Reply>& reply) { service.handle(request, reply); });
  service.connections = [&] { return server.connections(); };
  server.start();
  const std::string host = options_.host.find(':') == std::string::npos ? options_.host : "[" + options_.host + "]";
  if (options_.on_listening) options_.on_listening(fmt::format("http://{}:{}", host, server.port()));

  std::atomic<bool> done{false};
  // Waits for the signal, then for what is under way, then stops the generator.
  std::thread ender([&] {
    while (!done && !signals.wait(200)) {
    }
    if (done) return;
    log::info("shutting down: what is under way is finished first");
    service.drain();
    server.stop_accepting();
    const auto begin = std::chrono::steady_clock::now();
    while (!done && server.answering() > 0 &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < options_.grace)
      signals.wait(20);
    if (server.answering() > 0) service.fail("the server is shutting down");
    generator.stop_now();
  });
  const auto join = [&] {
    done = true;
    ender.join();
  };
  try {
    generator.serve();
  } catch (const std::exception& error) {
    service.fail(fmt::format("a rank was lost: {}", error.what()));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the answers go out
    join();
    server.stop();
    throw;
  }
  join();
  server.stop();
}

}  // namespace ppengine::runs
