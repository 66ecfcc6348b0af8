# Fuzz targets: the readers of model folders and token files. Included by tests/fuzz.
set(_fuzz ${PROJECT_SOURCE_DIR}/tests/fuzz)
set(_models ${PROJECT_SOURCE_DIR}/models)
set(_base ${PROJECT_SOURCE_DIR}/base)
set(_files ${_base}/error.cpp ${_base}/file.cpp ${_base}/json.cpp)
ppengine_fuzz(safetensors CORPUS ${_fuzz}/corpus/safetensors SOURCES ${_fuzz}/fuzz_safetensors.cpp ${_files} ${_models}/files/safetensors.cpp ${_models}/files/convert.cpp)
ppengine_fuzz(npy CORPUS ${_fuzz}/corpus/npy SOURCES ${_fuzz}/fuzz_npy.cpp ${_base}/error.cpp ${_base}/file.cpp ${_models}/files/npy.cpp)
set(_families config_decoder config_gpt2 config_parse config_rope families gemma2 gemma3_text gpt_neox granite llama mistral olmo2 phi3 qwen2 qwen3 rope smollm3)
list(TRANSFORM _families REPLACE "(.+)" "${_models}/families/\\1.cpp")
ppengine_fuzz(config CORPUS ${_fuzz}/corpus/config SOURCES ${_fuzz}/fuzz_config.cpp ${_files} ${_models}/config.cpp ${_families})
set(_tokenizer added_tokens bpe decoders normal_form normalizers pieces pipeline post_processors pre_tokenizers read_pipeline regex
  regex_translate unicode utf8)
list(TRANSFORM _tokenizer REPLACE "(.+)" "${_models}/tokenizer/\\1.cpp")
ppengine_fuzz(tokenizer CORPUS ${_fuzz}/corpus/tokenizer LIBRARIES -lpcre2-8 SOURCES ${_fuzz}/fuzz_tokenizer.cpp ${_files} ${_base}/log.cpp
  ${_models}/tokenizer/tokenizer.cpp ${_tokenizer})
set(_chat chat_template evaluator expressions filters lexer methods parser statements value)
list(TRANSFORM _chat REPLACE "(.+)" "${_models}/chat/\\1.cpp")
ppengine_fuzz(chat CORPUS ${_fuzz}/corpus/chat SOURCES ${_fuzz}/fuzz_chat.cpp ${_files} ${_chat})
