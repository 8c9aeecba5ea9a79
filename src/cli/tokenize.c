// SPDX-License-Identifier: Apache-2.0
// cli/tokenize.c: `nibble tokenize`: encodes text to token ids, or decodes ids to text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/options.h"

struct tokenize_command {
    bool pieces, no_special, decode;
    int count;
    char **words; // text, ids, or "-"
};

// Adds one line per token: its id, a tab and its piece with control bytes and backslashes written out.
static void add_piece_line(const struct nibble_tokenizer *tokenizer, int32_t id, struct strbuf *out)
{
    size_t len = 0;
    const char *piece = nibble_token_piece(tokenizer, id, &len);
    strbuf_add_format(out, "%d\t", id);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)piece[i];
        if (c < 0x20 || c == 0x7F || c == '\\')
            strbuf_add_format(out, "\\x%02x", c);
        else
            strbuf_add_byte(out, (char)c);
    }
    strbuf_add_byte(out, '\n');
}

static bool encode(const struct nibble_tokenizer *tokenizer, const struct tokenize_command *command,
                   const struct nibble_text *input, struct strbuf *out, struct error *err)
{
    int32_t *ids = NULL;
    ptrdiff_t count = nibble_tokenize(tokenizer, input->data, input->len,
                                      command->no_special ? 0 : NIBBLE_ADD_SPECIAL | NIBBLE_PARSE_SPECIAL, &ids, err);
    for (ptrdiff_t i = 0; i < count; i++) {
        if (command->pieces)
            add_piece_line(tokenizer, ids[i], out);
        else
            strbuf_add_format(out, "%s%d", i ? " " : "", ids[i]);
    }
    if (count >= 0 && !command->pieces)
        strbuf_add_byte(out, '\n');
    free(ids);
    return count >= 0;
}

static bool decode(const struct nibble_tokenizer *tokenizer, const struct tokenize_command *command,
                   const struct nibble_text *input, struct strbuf *out, struct error *err)
{
    struct nibble_decoder *decoder = nibble_decoder_open(tokenizer, command->no_special);
    struct nibble_text text = { 0 };
    bool ok = true;
    for (char *at = input->data + strspn(input->data, " ,\t\r\n"); ok && *at; at += strspn(at, " ,\t\r\n")) {
        char *end;
        long id = strtol(at, &end, 10);
        ok = end != at && strchr(" ,\t\r\n", *end) && id >= 0 && id < nibble_vocabulary_size(tokenizer);
        if (ok)
            nibble_decoder_add(decoder, (int32_t)id, &text);
        else
            fail(err, "\"%.20s\" is not a token id; ids are 0 to %d", at, nibble_vocabulary_size(tokenizer) - 1);
        at = end;
    }
    nibble_decoder_finish(decoder, &text);
    if (ok)
        strbuf_add(out, text.data, text.len);
    free(text.data);
    nibble_decoder_close(decoder);
    return ok;
}

// Takes the words joined by spaces, or standard input byte for byte. Terminated even when empty.
static bool gather_input(const struct tokenize_command *command, struct nibble_text *input, struct error *err)
{
    bool standard = !command->count || (command->count == 1 && !strcmp(command->words[0], "-"));
    if (standard && !cli_read("-", input, err))
        return false;
    struct strbuf text = { input->data, input->len, input->capacity };
    for (int i = 0; i < command->count && !standard; i++)
        strbuf_add_format(&text, "%s%s", i ? " " : "", command->words[i]);
    strbuf_add(&text, "", 0);
    *input = (struct nibble_text){ text.data, text.len, text.cap };
    return true;
}

static bool tokenize(const char *model, const struct tokenize_command *command, struct strbuf *out, struct error *err)
{
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_TEXT, err);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, err) : NULL;
    struct nibble_text input = { 0 };
    bool ok = tokenizer && gather_input(command, &input, err)
        && (command->decode ? decode : encode)(tokenizer, command, &input, out, err);
    free(input.data);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

int command_tokenize(int argc, char **argv)
{
    struct tokenize_command command = { 0 };
    const struct option_row options[] = {
        { "--pieces", OPTION_FLAG, &command.pieces, NULL, "one line per token: id, tab, piece" },
        { "--no-special", OPTION_FLAG, &command.no_special, NULL,
          "no BOS or EOS, special tokens in the text are plain text" },
        { "--decode", OPTION_FLAG, &command.decode, NULL, "the way back: ids to exact bytes" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble tokenize MODEL [TEXT | -] [--pieces] [--no-special] | --decode [IDS | -]",
        .about = "Prints the token ids of a text (- or nothing: standard input, byte for byte) on one line.",
        .example = "nibble tokenize model.gguf \"Hello world\"",
        .options = options,
        .required = { "MODEL" },
        .positional_max = -1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    command.count = count - 1;
    command.words = argv + 1;
    struct strbuf out = { 0 };
    struct error err = { 0 };
    int status = tokenize(argv[0], &command, &out, &err) ? EXIT_DONE : cli_fail(&err, false);
    if (status == EXIT_DONE)
        status = cli_output(out.data, out.len);
    strbuf_free(&out);
    return status;
}
