// LoRA adapters by name.
#include <ppengine/runs/generator/adapters.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/runs/training.hpp>

namespace ppengine::runs {
namespace {

// NAME=DIR; a folder whose own name has a '=' is one without a name.
models::NamedAdapter parse(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == text.npos || std::filesystem::exists(text)) return {"", text};
  models::NamedAdapter adapter{text.substr(0, at), text.substr(at + 1)};
  const auto is_odd = [](unsigned char c) { return c <= ' ' || c == ':' || c == '/' || c == '"' || c == 127; };
  if (adapter.name.empty() || std::ranges::any_of(adapter.name, is_odd))
    throw ConfigError(
        fmt::format("--adapter {}: '{}' is no name: give NAME=DIR, without spaces, ':', '/' and quotes in the name", text, adapter.name));
  return adapter;
}

}  // namespace

models::ModelSource open_model_with_adapters(const std::string& model, const std::vector<std::string>& adapters) {
  std::vector<models::NamedAdapter> named;
  std::string whole;
  for (const std::string& text : adapters) {
    models::NamedAdapter one = parse(text);
    if (!one.name.empty()) {
      if (std::ranges::find(named, one.name, &models::NamedAdapter::name) != named.end())
        throw ConfigError(fmt::format("--adapter {}: the name '{}' is taken by another adapter", text, one.name));
      named.push_back(std::move(one));
    } else if (!whole.empty()) {
      throw ConfigError(
          fmt::format("--adapter {}: there is {} already; give names to several: --adapter a=DIR --adapter b=DIR", text, whole));
    } else {
      whole = text;
    }
  }
  if (!whole.empty() && !named.empty())
    throw ConfigError(fmt::format("--adapter {}: goes without adapters that have a name; give it one too: --adapter a={}", whole, whole));
  models::ModelSource source = open_model_with_adapter(model, named.empty() ? whole : named.front().folder.string());
  if (named.empty()) return source;
  source.adapter.clear();
  source.adapters = std::move(named);
  static_cast<void>(graph_with_adapters(source));
  return source;
}

void check_adapters(const models::ModelSource& source, const engine::ParallelOptions& parallel) {
  if (!source.adapters.empty() && parallel.type != ops::Type::f32)
    throw ConfigError("--adapter NAME=DIR computes in f32; leave --dtype out, or give one adapter without a name");
}

std::vector<models::Adapter> open_adapters(const models::ModelSource& source) {
  std::vector<models::Adapter> opened;
  for (const models::NamedAdapter& one : source.adapters) opened.push_back(models::Adapter::open(one.folder));
  return opened;
}

engine::AdapterBank graph_with_adapters(const models::ModelSource& source) {
  auto graph = models::build_graph(source.config);
  if (source.adapters.empty()) return {std::move(graph), {}};
  std::vector<engine::LoraOptions> options;
  for (const models::Adapter& one : open_adapters(source)) {
    one.check(*graph);
    options.push_back(one.options());
  }
  return engine::add_adapters(*graph, options);
}

}  // namespace ppengine::runs
