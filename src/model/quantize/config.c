// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/rope.h"

struct publishing {
    const struct checkpoint *checkpoint;
    char prefix[64]; // of GGUF keys
    const struct model *model;
    json_t *config;
    struct error *err;
};

static bool add_llama(struct publishing *p);
static bool add_qwen(struct publishing *p);
static bool add_qwen_moe(struct publishing *p);
static bool add_gemma(struct publishing *p);

static const struct family {
    const char *architecture;            // nibble's name
    const char *model_type, *class_name; // config.json's names
    bool (*add)(struct publishing *p);   // adds the family's own keys
} families[] = {
    { "llama", "llama", "LlamaForCausalLM", add_llama },
    { "qwen2", "qwen2", "Qwen2ForCausalLM", add_qwen },
    { "qwen3", "qwen3", "Qwen3ForCausalLM", add_qwen },
    { "qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM", add_qwen_moe },
    { "gemma2", "gemma2", "Gemma2ForCausalLM", add_gemma },
    { "gemma3", "gemma3_text", "Gemma3ForCausalLM", add_gemma },
};

static void set(struct publishing *p, const char *key, json_t *value) { json_object_set_new(p->config, key, value); }

// The shortest decimal that gives the same f32, as GGUF stores f32.
static json_t *short_real(double value)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if ((float)strtod(text, NULL) == (float)value)
            break;
    }
    return json_real(strtod(text, NULL));
}

// ---- rope ----

static struct source source_of(const struct publishing *p)
{
    return (struct source){ .checkpoint = p->checkpoint, .prefix = p->prefix };
}

// Recovers Llama 3's rope scaling parameters from GGUF's divisors per pair: slow pairs have the whole factor, and a
// pair between slow and fast gives the original context, with the usual low and high frequency factors of 1 and 4.
static json_t *llama3_scaling(const struct rope *rope, int rotated)
{
    double factor = 1, original = 8192;
    for (int i = 0; i < rotated / 2; i++)
        factor = fmax(factor, rope->divisors[i]);
    for (int i = 0; i < rotated / 2; i++) {
        double blend = (1 / rope->divisors[i] - 1 / factor) / (1 - 1 / factor);
        if (blend > 0.01 && blend < 0.99)
            original = round(2 * M_PI * (1 + 3 * blend) * pow(rope->theta, 2.0 * i / rotated));
    }
    return json_pack("{s:s, s:o, s:f, s:f, s:I}", "rope_type", "llama3", "factor", short_real(factor),
                     "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings",
                     (json_int_t)original);
}

static bool add_rope(struct publishing *p)
{
    const struct model_config *config = &p->model->config;
    struct source source = source_of(p);
    struct rope rope = { 0 };
    if (!rope_read(&rope, &source, "full_attention", config->context, config->rotated, p->err))
        return false;
    json_t *scaling = json_null();
    if (rope.divisors)
        scaling = llama3_scaling(&rope, config->rotated);
    else if (rope.scaling == ROPE_LINEAR)
        scaling = json_pack("{s:s, s:o}", "rope_type", "linear", "factor", short_real(rope.factor));
    else if (rope.scaling == ROPE_YARN)
        scaling = json_pack("{s:s, s:o, s:i, s:o, s:o, s:o}", "rope_type", "yarn", "factor", short_real(rope.factor),
                            "original_max_position_embeddings", (int)rope.original_context, "beta_fast",
                            short_real(rope.beta_fast), "beta_slow", short_real(rope.beta_slow), "attention_factor",
                            short_real(rope.magnitude));
    set(p, "rope_theta", short_real(rope.theta));
    set(p, "rope_scaling", scaling);
    return true;
}

// ---- families ----

static bool has_bias(const struct model *model, enum buffer out)
{
    for (int i = 0; i < model->op_count; i++)
        for (int j = 0; j < model->ops[i].matrices; j++)
            if (model->ops[i].matrix[j].bias && model->ops[i].matrix[j].out == out)
                return true;
    return false;
}

static bool add_llama(struct publishing *p)
{
    int window = p->model->layer[0].window;
    set(p, "hidden_act", json_string("silu"));
    set(p, "attention_bias", json_boolean(has_bias(p->model, BUFFER_Q)));
    set(p, "mlp_bias", json_boolean(has_bias(p->model, BUFFER_GATE)));
    if (p->model->config.experts.count) { // with experts: Mixtral, which GGUFs call llama
        set(p, "model_type", json_string("mixtral"));
        set(p, "architectures", json_pack("[s]", "MixtralForCausalLM"));
        set(p, "num_local_experts", json_integer(p->model->config.experts.count));
        set(p, "num_experts_per_tok", json_integer(p->model->config.experts.top_k));
        set(p, "sliding_window", window ? json_integer(window) : json_null());
    } else if (window) { // with a window on every layer: Mistral
        set(p, "model_type", json_string("mistral"));
        set(p, "architectures", json_pack("[s]", "MistralForCausalLM"));
        set(p, "sliding_window", json_integer(window));
    }
    return true;
}

static bool add_qwen(struct publishing *p)
{
    set(p, "hidden_act", json_string("silu"));
    set(p, "use_sliding_window", json_false());
    set(p, "attention_bias", json_boolean(has_bias(p->model, BUFFER_Q)));
    return true;
}

static bool add_qwen_moe(struct publishing *p)
{
    const struct model_experts *experts = &p->model->config.experts;
    set(p, "num_experts", json_integer(experts->count));
    set(p, "num_experts_per_tok", json_integer(experts->top_k));
    set(p, "moe_intermediate_size", json_integer(experts->width));
    set(p, "norm_topk_prob", json_boolean(experts->normalise));
    set(p, "decoder_sparse_step", json_integer(1));
    set(p, "mlp_only_layers", json_array());
    return add_qwen(p);
}

static json_t *layer_types(const struct model *model, int *window)
{
    json_t *types = json_array();
    for (int i = 0; i < model->config.layers; i++) {
        *window = model->layer[i].window ? model->layer[i].window : *window;
        json_array_append_new(types, json_string(model->layer[i].window ? "sliding_attention" : "full_attention"));
    }
    return types;
}

static bool add_gemma(struct publishing *p)
{
    const struct model_config *config = &p->model->config;
    struct source source = source_of(p);
    int window = 0;
    double local = 10000;
    set(p, "hidden_activation", json_string("gelu_pytorch_tanh"));
    double squared = 1 / (config->attention_scale * config->attention_scale);
    bool whole = fabs(squared - round(squared)) < 1e-6 * squared;
    set(p, "query_pre_attn_scalar", whole ? json_integer((json_int_t)round(squared)) : short_real(squared));
    set(p, "layer_types", layer_types(p->model, &window));
    set(p, "sliding_window", json_integer(window));
    set(p, "attn_logit_softcapping",
        config->attention_softcap > 0 ? short_real(config->attention_softcap) : json_null());
    set(p, "final_logit_softcapping", config->final_softcap > 0 ? short_real(config->final_softcap) : json_null());
    if (strcmp(config->architecture, "gemma3"))
        return true;
    set(p, "rope_local_base_freq", short_real(local));
    return source_real(&source, NULL, "rope.freq_base_swa", &local, p->err)
        && (set(p, "rope_local_base_freq", short_real(local)), true);
}

// ---- common keys ----

static bool add_token_id(struct publishing *p, const char *key, const char *gguf_key)
{
    int64_t id = -1;
    if (!gguf_get_int(p->checkpoint->gguf, gguf_key, -1, UINT32_MAX, &id, p->err))
        return false;
    if (id >= 0 && id < p->model->config.vocabulary)
        set(p, key, json_integer(id));
    return true;
}

static bool is_tied(const struct model *model)
{
    const struct tensor *table = NULL, *head = NULL;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        table = op->kind == OP_EMBED ? op->matrix[0].tensor : table;
        head = op->kind == OP_LINEAR && op->matrix[0].out == BUFFER_LOGITS ? op->matrix[0].tensor : head;
    }
    return table == head;
}

static bool add_all(struct publishing *p, const struct family *family)
{
    const struct model_config *config = &p->model->config;
    set(p, "architectures", json_pack("[s]", family->class_name));
    set(p, "model_type", json_string(family->model_type));
    set(p, "hidden_size", json_integer(config->hidden));
    set(p, "intermediate_size", json_integer(config->feed_forward));
    set(p, "num_hidden_layers", json_integer(config->layers));
    set(p, "num_attention_heads", json_integer(config->heads));
    set(p, "num_key_value_heads", json_integer(config->kv_heads));
    set(p, "head_dim", json_integer(config->head_dim));
    set(p, "max_position_embeddings", json_integer(config->context));
    set(p, "rms_norm_eps", short_real(config->norm_epsilon));
    set(p, "vocab_size", json_integer(config->vocabulary));
    set(p, "tie_word_embeddings", json_boolean(is_tied(p->model)));
    set(p, "torch_dtype", json_string("bfloat16"));
    if (config->rotated != config->head_dim)
        set(p, "partial_rotary_factor", json_real((double)config->rotated / config->head_dim));
    return add_rope(p) && family->add(p) && add_token_id(p, "bos_token_id", "tokenizer.ggml.bos_token_id")
        && add_token_id(p, "eos_token_id", "tokenizer.ggml.eos_token_id");
}

// ---- verification ----

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

// Names a difference, or NULL.
static const char *difference(const struct model *a, const struct model *b)
{
    const struct model_config *x = &a->config, *y = &b->config;
    if (x->layers != y->layers || x->hidden != y->hidden || x->heads != y->heads || x->kv_heads != y->kv_heads
        || x->head_dim != y->head_dim || x->rotated != y->rotated || x->feed_forward != y->feed_forward
        || x->vocabulary != y->vocabulary || x->context != y->context)
        return "sizes";
    if (!near(x->norm_epsilon, y->norm_epsilon) || !near(x->embed_scale, y->embed_scale)
        || !near(x->attention_scale, y->attention_scale) || !near(x->attention_softcap, y->attention_softcap)
        || !near(x->final_softcap, y->final_softcap) || x->activation != y->activation)
        return "numbers";
    const struct model_experts *some = &x->experts, *others = &y->experts;
    if (some->count != others->count || some->top_k != others->top_k || some->width != others->width
        || some->first_layer != others->first_layer || some->moe_layer_freq != others->moe_layer_freq
        || some->shared_width != others->shared_width || some->score != others->score || some->groups != others->groups
        || some->normalise != others->normalise || !near(some->scale, others->scale))
        return "experts";
    for (int i = 0; i < x->layers; i++) {
        if (a->layer[i].window != b->layer[i].window)
            return "windows";
        bool same = near(a->layer[i].rope_magnitude, b->layer[i].rope_magnitude)
            && !a->layer[i].frequencies == !b->layer[i].frequencies;
        for (int pair = 0; pair < x->rotated / 2 && same && a->layer[i].frequencies; pair++)
            same = near(a->layer[i].frequencies[pair], b->layer[i].frequencies[pair]);
        if (!same)
            return "rope frequencies";
    }
    return NULL;
}

static bool prove(const struct publishing *p, struct model *published)
{
    struct checkpoint imagined = { .path = "config.json", .config = p->config };
    if (!model_describe(published, &imagined, p->err))
        return fail_within(p->err, "the config.json made of the GGUF");
    const char *trouble = difference(p->model, published);
    if (!trouble)
        return true;
    model_free(published);
    return fail(p->err, "the GGUF has %s that a %s config.json cannot say; quantise the published checkpoint instead",
                trouble, p->model->config.architecture);
}

bool config_publish(const struct checkpoint *gguf, const struct model *model, json_t **config, struct model *published,
                    struct error *err)
{
    struct publishing p = { .checkpoint = gguf, .model = model, .config = json_object(), .err = err };
    const struct family *family = NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].architecture, model->config.architecture))
            family = &families[i];
    struct bytes prefix = { 0 };
    if (gguf_get_string(gguf->gguf, "general.architecture", &prefix, err))
        snprintf(p.prefix, sizeof p.prefix, "%.*s", (int)prefix.len, prefix.data);
    bool ok = family
        || fail(err, "nibble makes no config.json of a %s GGUF; quantise the published checkpoint instead",
                model->config.architecture);
    ok = ok && add_all(&p, family) && prove(&p, published);
    if (ok)
        *config = p.config;
    else
        json_decref(p.config);
    return ok;
}
