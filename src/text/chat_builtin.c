// SPDX-License-Identifier: Apache-2.0
// Chat templates for checkpoints without one (ChatML and its relatives).
#include "text/chat_builtin.h"

static const struct chat_builtin builtins[] = {
    { "ChatML", "<|im_start|>", "<|im_end|>",
      "{% for message in messages %}"
      "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
      "{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    { "Llama 3", "<|start_header_id|>", "<|eot_id|>",
      "{{ bos_token }}"
      "{% for message in messages %}"
      "{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ '<|eot_id|>' }}"
      "{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}" },
    { "Gemma", "<start_of_turn>", "<end_of_turn>", // its system text stands in the first turn of the user
      "{{ bos_token }}"
      "{% set turn = namespace(system='') %}"
      "{% for message in messages %}"
      "{% if message.role == 'system' %}{% set turn.system = message.content | trim ~ '\\n\\n' %}{% else %}"
      "{{ '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\\n' ~ turn.system"
      " ~ message.content | trim ~ '<end_of_turn>\\n' }}"
      "{% set turn.system = '' %}"
      "{% endif %}"
      "{% endfor %}"
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}" },
};

static int32_t find_special(const struct tokenizer *tokenizer, const char *piece)
{
    int32_t id = tokenizer_find(tokenizer, bytes_of(piece));
    return id >= 0 && tokenizer_is_special(tokenizer, id) ? id : -1;
}

const struct chat_builtin *chat_builtin_find(const struct tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
        int32_t end = find_special(tokenizer, builtins[i].end);
        if (find_special(tokenizer, builtins[i].begin) >= 0 && end >= 0 && tokenizer_is_end(tokenizer, end))
            return &builtins[i];
    }
    return NULL;
}
