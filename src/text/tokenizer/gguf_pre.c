// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizer regexes as published by each model family; characters outside of ASCII are escaped.
#include "text/tokenizer/gguf_pre.h"

#include "text/tokenizer/parts.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
// words that begin with their capitals, or are all capitals; `x` is what may follow one
#define CASED_WORDS(x)                                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" x "|[^\\r\\n\\p{L}" \
    "\\p{N}]?[\\p{Lu}"                                                                                              \
    "\\p{Lt}\\p{Lm}\\p{"                                                                                            \
    "Lo}\\p{M}]+[\\p{"                                                                                              \
    "Ll}\\p{Lm}\\p{Lo}"                                                                                             \
    "\\p{M}]*" x
#define CASED_SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define DEEPSEEK3_WORDS \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define DEEPSEEK_WORDS                                                                                             \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-"  \
    "\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-" \
    "\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-"    \
    "\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"     \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-"    \
    "\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"       \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-"    \
    "\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"       \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"      \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"       \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-"    \
    "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"   \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"    \
    "\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_PUNCTUATION "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK3_CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define YOUTU_CJK                                                                                                \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}" \
    "\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|[\\x{4e00}-"     \
    "\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define AFMOE_CJK                                                                                                \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}\\x{ff65}-" \
    "\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}"       \
    "\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"

#define SPLITS(id, ...) static const char *const id[] = { __VA_ARGS__, NULL }

SPLITS(standard, "[\\p{P}\\$\\+<=>\\^~\\|]+", PRETOKENIZE_GPT2, "\\p{N}+", "[0-9][0-9][0-9]");
SPLITS(gpt2, PRETOKENIZE_GPT2);
SPLITS(digits_gpt2, "\\p{N}", PRETOKENIZE_GPT2);
SPLITS(llama3, CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" SYMBOLS "|" SPACES);
SPLITS(qwen2, CONTRACTIONS "|" WORDS "|\\p{N}|" SYMBOLS "|" SPACES);
SPLITS(qwen35,
       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES);
SPLITS(minicpm5, "\\p{N}{1,3}", CONTRACTIONS "|" WORDS "|\\p{N}+|" SYMBOLS "|" SPACES);
SPLITS(ufakzeka, WORDS "|\\p{N}|" SYMBOLS "|" SPACES);
SPLITS(laguna, "[^\\n]+|[\\n]+", CONTRACTIONS "|" WORDS "|\\p{N}|" SYMBOLS "|" SPACES);
SPLITS(seed_coder, CONTRACTIONS "|" WORDS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES);
SPLITS(bailing,
       "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
       "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+");
SPLITS(exaone_moe,
       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}"
                    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+");
SPLITS(jais2,
       CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" SYMBOLS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)"
                    "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}"
                    "(?!\\S)"
                    "|\\s{1}");
SPLITS(tekken, CASED_WORDS("") "|\\p{N}|" CASED_SYMBOLS "|" SPACES);
SPLITS(gpt4o, CASED_WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}|" CASED_SYMBOLS "|" SPACES);
SPLITS(tiny_aya, "\\d{1,3}(?=(?:\\d{3})*\\b)", CASED_WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}|" CASED_SYMBOLS "|" SPACES);
SPLITS(youtu, YOUTU_CJK, CASED_WORDS(CONTRACTIONS "?") "|\\p{N}|" CASED_SYMBOLS "|" SPACES);
SPLITS(kimi_k2,
       "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS "?"
       "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}|" SYMBOLS "|" SPACES);
SPLITS(deepseek_llm, "[\\r\\n]", DEEPSEEK_WORDS, DEEPSEEK_PUNCTUATION, "\\s+$", DEEPSEEK_CJK, "\\p{N}+");
SPLITS(deepseek_coder, "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}");
SPLITS(deepseek3, "\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES);
SPLITS(spark, "\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}");
SPLITS(afmoe, "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", AFMOE_CJK,
       DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES);
SPLITS(superbpe, "\\p{N}+", "(?=(\\d{3})+(?!\\d))");
SPLITS(falcon, "[\\p{P}\\$\\+<=>\\^~\\|`]+", PRETOKENIZE_GPT2, "[0-9][0-9][0-9]");
SPLITS(bloom, " ?[^(\\s|[.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}])]+");
SPLITS(viking, " ?[^(\\s|[.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}])]+", "\\p{N}");
SPLITS(chameleon, "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
       "[\\p{P}!-/:-@\\[-`{-~]", PRETOKENIZE_GPT2);
SPLITS(newlines, "[^\\n]+|[\\n]+");

// Names are separated by spaces.
static const struct gguf_pre rows[] = {
    { "default", standard, 0 },
    { "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", llama3,
      GGUF_PRE_WHOLE | GGUF_PRE_BOS },
    { "dbrx smaug-bpe", llama3, 0 },
    { "chatglm-bpe", llama3, GGUF_PRE_NO_BOS },
    { "glm4 glm5", llama3, GGUF_PRE_WHOLE | GGUF_PRE_NO_BOS },
    { "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de "
      "jina-v2-code roberta-bpe gigachat a.x-4.0 mellum modern-bert",
      gpt2, 0 },
    { "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", digits_gpt2, 0 },
    { "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", qwen2, 0 },
    { "qwen35", qwen35, 0 },
    { "minicpm5", minicpm5, GGUF_PRE_WHOLE },
    { "ufakzeka", ufakzeka, 0 },
    { "laguna", laguna, 0 },
    { "seed-coder", seed_coder, 0 },
    { "bailingmoe bailingmoe2 llada-moe", bailing, 0 },
    { "exaone-moe", exaone_moe, 0 },
    { "jais-2", jais2, 0 },
    { "tekken", tekken, GGUF_PRE_WHOLE | GGUF_PRE_BOS },
    { "gpt-4o llama4 kanana2 talkie minimax-m2", gpt4o, 0 },
    { "granite-embed-multi-97m", gpt4o, GGUF_PRE_WHOLE },
    { "tiny_aya cohere2moe", tiny_aya, 0 },
    { "youtu", youtu, GGUF_PRE_WHOLE },
    { "kimi-k2", kimi_k2, 0 },
    { "deepseek-llm", deepseek_llm, 0 },
    { "deepseek-coder", deepseek_coder, 0 },
    { "deepseek-v3 hunyuan-dense joyai-llm hy_v4", deepseek3, 0 },
    { "spark2_5", spark, 0 },
    { "afmoe", afmoe, 0 },
    { "superbpe", superbpe, 0 },
    { "falcon", falcon, 0 },
    { "poro-chat bloom gpt3-finnish", bloom, 0 },
    { "viking", viking, 0 },
    { "chameleon", chameleon, GGUF_PRE_BOS },
    { "gemma4 granite-embed-multi-311m", newlines, GGUF_PRE_SPACES | GGUF_PRE_NEWLINES_WHOLE | GGUF_PRE_BOS_ALWAYS },
    { "sarvam-moe", newlines, GGUF_PRE_SPACES },
};

const struct gguf_pre *gguf_pre_find(struct bytes name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bytes_is_word(rows[i].names, name))
            return &rows[i];
    return NULL;
}
