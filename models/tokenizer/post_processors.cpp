// Post-processors of tokenizer.json: where special tokens go around the text.
#include <fmt/core.h>

#include <ppengine/models/tokenizer/detail/steps.hpp>

namespace ppengine::models::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

std::int32_t read_id(const JsonPlace& place) { return static_cast<std::int32_t>(place.integer(0, INT32_MAX)); }

void read_template(const JsonPlace& place, std::vector<PostProcessor>& steps) {
  struct Part {
    bool text = false;  // the text's own ids
    Ids ids;
  };
  std::vector<Part> parts;
  const JsonPlace single = place.at("single");
  for (std::size_t i = 0; i < single.expect_array().size(); ++i) {
    const JsonPlace piece = single.element(i);
    if (const auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").string() != "A") sequence->at("id").refuse("must be A in the template of a single text");
      parts.push_back({true, {}});
      continue;
    }
    const JsonPlace id = piece.at("SpecialToken").at("id");
    const JsonPlace list = place.at("special_tokens").at(id.string().c_str()).at("ids");
    Part part;
    for (std::size_t k = 0; k < list.expect_array().size(); ++k) part.ids.push_back(read_id(list.element(k)));
    parts.push_back(std::move(part));
  }
  steps.push_back([parts](Ids ids, bool add_special_tokens) {
    Ids out;
    for (const Part& part : parts) {
      if (part.text)
        out.insert(out.end(), ids.begin(), ids.end());
      else if (add_special_tokens)
        out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
    return out;
  });
}

void read_around(const JsonPlace& place, std::vector<PostProcessor>& steps) {
  const std::int32_t first = read_id(place.at("cls").element(1)), last = read_id(place.at("sep").element(1));
  steps.push_back([=](Ids ids, bool add_special_tokens) {
    if (!add_special_tokens) return ids;
    ids.insert(ids.begin(), first);
    ids.push_back(last);
    return ids;
  });
}

void read(const JsonPlace& place, std::vector<PostProcessor>& steps) {
  const JsonPlace type = place.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonPlace list = place.at("processors");
    for (std::size_t i = 0; i < list.expect_array().size(); ++i) read(list.element(i), steps);
  } else if (name == "TemplateProcessing") {
    read_template(place, steps);
  } else if (name == "BertProcessing" || name == "RobertaProcessing") {
    for (const char* key : {"cls", "sep"})
      if (place.at(key).expect_array().size() != 2) place.at(key).refuse("must be a token and its id");
    read_around(place, steps);
  } else if (name != "ByteLevel") {  // which changes offsets only
    type.refuse(fmt::format("is '{}', which is not supported", name));
  }
}

}  // namespace

std::vector<PostProcessor> read_post_processors(const JsonPlace& place) {
  std::vector<PostProcessor> steps;
  if (!place.json().is_null()) read(place, steps);
  return steps;
}

}  // namespace ppengine::models::tokenizer
