// The routes of a server: what each request becomes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/runs/generator.hpp>
#include <ppengine/runs/serving/completion.hpp>
#include <ppengine/runs/serving/http.hpp>
#include <ppengine/runs/serving/metrics.hpp>

namespace ppengine::runs::serving {

struct ServiceOptions {
  std::string model;                 // as clients call it
  std::vector<std::string> aliases;  // other names that are taken
  std::vector<std::string> adapters;  // by number: clients ask for MODEL:ADAPTER
  std::string api_key;               // empty: none is asked for
  std::int64_t max_queue = 256;      // sequences that wait for a place
  std::int64_t capacity = 0;         // tokens of a sequence
};

// Embeddings of several texts: one vector per list of ids.
using Embed = std::function<std::vector<std::vector<float>>(const std::vector<Ids>& ids, bool last_token, int adapter)>;

class Service {
 public:
  Service(const ServiceOptions& options, const models::ModelSource& source, Generator& generator, Embed embed);

  void handle(const HttpRequest& request, const std::shared_ptr<Reply>& reply);
  void drain() { draining_ = true; }
  // The ranks are gone: everything under way is answered with 503, and so is what comes.
  void fail(const std::string& reason);
  std::function<std::size_t()> connections = [] { return std::size_t{0}; };

 private:
  void route(const HttpRequest& request, const std::shared_ptr<Reply>& reply);
  void completion(const HttpRequest& request, const std::shared_ptr<Reply>& reply, bool chat);
  Json embeddings(const HttpRequest& request);
  Json tokenize(const HttpRequest& request) const;
  Json detokenize(const HttpRequest& request) const;
  Json models_list() const;
  Ids encode(const std::string& text, bool special, const char* field) const;
  std::string render(const CompletionRequest& request) const;
  void check_key(const HttpRequest& request) const;
  void check_schema(const std::string& schema) const;
  // What a request's 'model' names: the number of an adapter, or -1 for the model itself. ApiError 404 for others.
  int find_model(const std::string& name) const;
  std::string model_name(int adapter) const;
  void answer(const HttpRequest& request, const std::shared_ptr<Reply>& reply, int status, const std::string& type, const std::string& body,
              const Reply::Headers& headers = {});

  ServiceOptions options_;
  const models::ModelSource& source_;
  std::optional<models::Tokenizer> tokenizer_;
  std::optional<models::ChatTemplate> chat_;
  Generator& generator_;
  Embed embed_;
  Metrics metrics_;
  std::int64_t started_;
  std::atomic<bool> draining_{false};
  std::mutex mutex_;  // of what follows
  std::string failed_;
  std::set<std::shared_ptr<Completion>> under_way_;
};

const char* chat_page();

}  // namespace ppengine::runs::serving
