// Properties of code points as the parts of Hugging Face's tokenizers see them (tables/make_tables.py).
#pragma once

#include <string>
#include <string_view>

namespace ppengine::models::tokenizer {

bool is_whitespace(char32_t point);   // White_Space
bool is_word(char32_t point);         // \w of Rust's regex
bool is_numeric(char32_t point);      // Rust's char::is_numeric
bool is_punctuation(char32_t point);  // Punctuation and ASCII's
bool is_mark(char32_t point);         // what StripAccents removes

std::string lowercase(std::string_view text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);

}  // namespace ppengine::models::tokenizer
