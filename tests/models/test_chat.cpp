// Chat templates against transformers (data/chat/cases.json, made by reference/make_chat_reference.py), and hostile templates against the
// limits.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include <ppengine/base/file.hpp>
#include <ppengine/models/chat/chat_template.hpp>

using namespace ppengine;
using namespace ppengine::models;
using Json = nlohmann::ordered_json;

namespace {

std::string message_of(const std::string& text) {
  try {
    return "rendered: " + ChatTemplate::parse(text, "t").render(Json::array(), true);
  } catch (const TemplateError& error) {
    return error.what();
  }
}

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("ppengine_chat_" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const std::string& text) const { std::ofstream(path / name) << text; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(chat)

BOOST_AUTO_TEST_CASE(templates_give_the_text_that_transformers_gives) {
  setenv("TZ", "UTC", 1);
  const Json all = Json::parse(read_file(std::string(PPENGINE_SOURCE_DIR) + "/tests/models/data/chat/cases.json", 1 << 24));
  int rendered = 0, refused = 0;
  for (const Json& each : all["cases"]) {
    const std::string name = each["name"].get<std::string>(), conversation = each["chat"].get<std::string>();
    ChatOptions options;
    options.add_generation_prompt = each["add_generation_prompt"].get<bool>();
    if (each["tools"].get<bool>()) options.tools = all["tools"];
    options.now = all["now"].get<std::time_t>();
    BOOST_TEST_CONTEXT(name << " with " << conversation) {
      const ChatTemplate parsed = ChatTemplate::parse(all["templates"][name].get<std::string>(), name, each["variables"]);
      if (each.contains("text")) {
        BOOST_TEST(parsed.render(all["chats"][conversation], options) == each["text"].get<std::string>());
        ++rendered;
      } else {
        BOOST_CHECK_THROW(parsed.render(all["chats"][conversation], options), TemplateError);
        ++refused;
      }
    }
  }
  BOOST_TEST(rendered == 151);
  BOOST_TEST(refused == 41);
}

BOOST_AUTO_TEST_CASE(a_folder_has_its_template_in_either_file) {
  const Folder folder;
  BOOST_TEST(!ChatTemplate::load(folder.path));
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": "{{ bos_token }}1{{ eos_token }}"})");
  BOOST_TEST(ChatTemplate::load(folder.path).value().render(Json::array(), true) == "<b>1<e>");
  folder.write("chat_template.jinja", "{{ bos_token }}2{{ pad_token }}\n");
  BOOST_TEST(ChatTemplate::load(folder.path).value().render(Json::array(), true) == "<b>2");
  std::filesystem::remove(folder.path / "chat_template.jinja");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  const ChatTemplate both = ChatTemplate::load(folder.path).value();
  BOOST_TEST(both.render(Json::array(), true) == "d");
  ChatOptions with_tools;
  with_tools.tools = Json::array({Json::object()});
  BOOST_TEST(both.render(Json::array(), with_tools) == "t");
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_named_with_its_line) {
  BOOST_TEST(message_of("a\n{% include 'x' %}").starts_with("t:2: the statement 'include' is not supported"));
  BOOST_TEST(message_of("\n\n{{ 'a' | nope }}").starts_with("t:3: the filter 'nope' is not supported"));
  BOOST_TEST(message_of("{{ x is nope }}").starts_with("t:1: the test 'nope' is not supported"));
  BOOST_TEST(message_of("{% if x %}").starts_with("t:1: a block is not closed with 'endif'"));
  BOOST_TEST(message_of("{{ x.y.z }}").find("'x' is undefined") != std::string::npos);
  BOOST_TEST(message_of("{{ 'open }}").find("not closed") != std::string::npos);
  BOOST_TEST(message_of("{{ raise_exception('no ' ~ 'way') }}").find("no way") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(hostile_templates_end_soon_with_an_error) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}";
  BOOST_TEST(message_of(loops).find("more than") != std::string::npos);
  const std::string doubling = "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
  BOOST_TEST(message_of(doubling).find("more than") != std::string::npos);
  BOOST_TEST(message_of("{{ 'x' * 99999999999 }}").find("too long") != std::string::npos);
  BOOST_TEST(message_of("{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}").find("nested deeper") !=
             std::string::npos);
  BOOST_TEST(message_of("{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}")
                 .find("more than") != std::string::npos);
  BOOST_TEST(message_of("{% set n = namespace() %}{% set n.me = n %}").find("not supported") != std::string::npos);
  BOOST_TEST(message_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("deep") != std::string::npos);
  BOOST_TEST(message_of("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}").find("nested deeper") !=
             std::string::npos);
  BOOST_TEST(message_of("{{ " + std::string(100000, '-') + "1 }}").find("nested deeper") != std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += " + 1";
  BOOST_TEST(message_of(sum + " }}").find("steps") != std::string::npos);
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}";
  BOOST_TEST(message_of(blocks).find("nested deeper") != std::string::npos);
  BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 120.0);
}

BOOST_AUTO_TEST_SUITE_END()
