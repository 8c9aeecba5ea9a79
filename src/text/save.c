// SPDX-License-Identifier: Apache-2.0
// tokenizer.json, tokenizer_config.json and the chat template of a checkpoint that is written.
#include "text/save.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "format/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer/save.h"

// ---- from a folder ----

// Small files beside the weights, to which other files or programs may refer.
static bool is_wanted(const char *name)
{
    static const char *const wanted[] = { "*.json",     "*.jinja", "*.model",  "*.txt",
                                          "*.tiktoken", "*.py",    "LICENSE*", "NOTICE*" };
    static const char *const written_anew[] = { "config.json", "hf_quant_config.json", "*.safetensors.index.json",
                                                "*.bin.index.json" };
    for (size_t i = 0; i < sizeof written_anew / sizeof *written_anew; i++)
        if (!fnmatch(written_anew[i], name, 0))
            return false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!fnmatch(wanted[i], name, FNM_PERIOD))
            return true;
    return false;
}

static bool copy_file(const char *from, const char *to, const char *name, struct error *err)
{
    struct strbuf source = { 0 }, target = { 0 };
    struct file file = { 0 };
    strbuf_add_format(&source, "%s/%s", from, name);
    strbuf_add_format(&target, "%s/%s", to, name);
    bool ok = !file_exists(source.data)
        || (file_open(&file, source.data, err) && file_save(target.data, file.content, err));
    file_close(&file);
    strbuf_free(&source);
    strbuf_free(&target);
    return ok;
}

static bool copy_files(const char *from, const char *to, struct error *err)
{
    DIR *folder = opendir(from);
    if (!folder)
        return fail(err, "%s: cannot be opened (%s)", from, strerror(errno));
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(folder));)
        if (is_wanted(entry->d_name))
            ok = copy_file(from, to, entry->d_name, err);
    closedir(folder);
    return ok;
}

// ---- from a GGUF ----

static bool add_token(json_t *config, const char *key, const struct tokenizer *tokenizer, const struct gguf *gguf,
                      const char *gguf_key, struct error *err)
{
    int64_t id = -1;
    if (!gguf_get_int(gguf, gguf_key, -1, UINT32_MAX, &id, err))
        return false;
    if (id >= 0 && id < tokenizer_size(tokenizer)) {
        struct bytes piece = tokenizer_piece(tokenizer, (int32_t)id);
        if (piece.data)
            json_object_set_new(config, key, json_stringn(piece.data, piece.len));
    }
    return true;
}

// One template is a string, several are a list with names.
static bool add_templates(json_t *config, const struct gguf *gguf, struct error *err)
{
    struct bytes plain = { 0 }, tools = { 0 };
    if (!gguf_get_string(gguf, "tokenizer.chat_template", &plain, err)
        || !gguf_get_string(gguf, "tokenizer.chat_template.tool_use", &tools, err))
        return false;
    json_t *text = plain.data ? json_stringn(plain.data, plain.len) : NULL;
    if (tools.data)
        text = json_pack("[{s:s, s:o*}, {s:s, s:o*}]", "name", "default", "template", text, "name", "tool_use",
                         "template", json_stringn(tools.data, tools.len));
    if (text)
        json_object_set_new(config, "chat_template", text);
    return true;
}

static bool save_tokenizer_config(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *folder,
                                  struct error *err)
{
    json_t *config = json_pack("{s:s, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "add_bos_token",
                               tokenizer_adds_bos(tokenizer), "clean_up_tokenization_spaces", 0);
    bool ok = add_token(config, "bos_token", tokenizer, gguf, "tokenizer.ggml.bos_token_id", err)
        && add_token(config, "eos_token", tokenizer, gguf, "tokenizer.ggml.eos_token_id", err)
        && add_token(config, "unk_token", tokenizer, gguf, "tokenizer.ggml.unknown_token_id", err)
        && add_token(config, "pad_token", tokenizer, gguf, "tokenizer.ggml.padding_token_id", err)
        && add_templates(config, gguf, err) && json_save(config, folder, "tokenizer_config.json", err);
    json_decref(config);
    return ok;
}

// Every token that ends an answer, EOS first.
static bool save_generation_config(const struct tokenizer *tokenizer, const char *folder, struct error *err)
{
    json_t *config = json_object(), *ends = json_array();
    int32_t eos = tokenizer_eos(tokenizer);
    if (tokenizer_bos(tokenizer) >= 0)
        json_object_set_new(config, "bos_token_id", json_integer(tokenizer_bos(tokenizer)));
    if (eos >= 0)
        json_array_append_new(ends, json_integer(eos));
    for (int32_t id = 0; id < tokenizer_size(tokenizer); id++)
        if (id != eos && tokenizer_is_end(tokenizer, id))
            json_array_append_new(ends, json_integer(id));
    json_object_set_new(config, "eos_token_id", ends);
    bool ok = json_save(config, folder, "generation_config.json", err);
    json_decref(config);
    return ok;
}

static bool save_gguf(const struct checkpoint *checkpoint, const char *folder, struct error *err)
{
    struct tokenizer *tokenizer = tokenizer_open(checkpoint, err);
    json_t *json = tokenizer ? tokenizer_to_json(tokenizer, checkpoint->gguf, err) : NULL;
    bool ok = json && json_save(json, folder, "tokenizer.json", err)
        && save_tokenizer_config(tokenizer, checkpoint->gguf, folder, err)
        && save_generation_config(tokenizer, folder, err);
    json_decref(json);
    tokenizer_close(tokenizer);
    return ok;
}

bool text_save(const struct checkpoint *checkpoint, const char *folder, struct error *err)
{
    return checkpoint->gguf ? save_gguf(checkpoint, folder, err) : copy_files(checkpoint->path, folder, err);
}
