// SPDX-License-Identifier: Apache-2.0
// The ranks' parts of a model together are the whole, each row or column once, whatever the format and the
// architecture; what they exchange; and what cannot be divided. The models are config.json alone, with noise where the
// weights would be.
#include "base/random.h"
#include "container.h"
#include "format/json.h"
#include "model/shard.h"
#include "model/tensor_source.h"

enum { RANKS_MAX = 6 };

#define SIZES_OF(layers, vocab) \
    "\"hidden_size\":64,\"num_hidden_layers\":" #layers ",\"max_position_embeddings\":64,\"vocab_size\":" #vocab ","
#define SIZES SIZES_OF(2, 203)
#define HEADS "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"head_dim\":16,\"intermediate_size\":96,"
#define EXPERTS "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
#define LATENT                                                                                        \
    "\"num_attention_heads\":6,\"intermediate_size\":96,\"kv_lora_rank\":32,\"qk_rope_head_dim\":16," \
    "\"qk_nope_head_dim\":24,\"v_head_dim\":16,\"n_routed_experts\":4,\"first_k_dense_replace\":1,"
#define DELTA                                                                                \
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"    \
    "\"linear_value_head_dim\":16,\"num_experts\":4,\"shared_expert_intermediate_size\":48," \
    "\"layer_types\":[\"linear_attention\",\"full_attention\"],"
#define SCAN "\"mamba_num_heads\":4,\"mamba_head_dim\":16,\"n_groups\":2,\"ssm_state_size\":16,\"conv_kernel\":4,"

static const char *const configs[] = {
    "{" SIZES HEADS "\"model_type\":\"llama\"}",
    "{" SIZES HEADS "\"model_type\":\"llama\",\"tie_word_embeddings\":true}",
    "{" SIZES HEADS "\"model_type\":\"mistral\",\"sliding_window\":32}",
    "{" SIZES HEADS "\"model_type\":\"qwen2\"}",
    "{" SIZES HEADS "\"model_type\":\"qwen3\"}",
    "{" SIZES HEADS "\"model_type\":\"gemma2\"}",
    "{" SIZES HEADS "\"model_type\":\"gemma3_text\"}",
    "{" SIZES HEADS "\"model_type\":\"phi3\"}",
    "{" SIZES HEADS "\"model_type\":\"olmo2\"}",
    "{" SIZES HEADS "\"model_type\":\"granite\"}",
    "{" SIZES HEADS "\"model_type\":\"smollm3\"}",
    "{" SIZES HEADS EXPERTS "\"model_type\":\"mixtral\",\"num_local_experts\":4}",
    "{" SIZES HEADS EXPERTS "\"model_type\":\"qwen3_moe\",\"num_experts\":4}",
    "{" SIZES HEADS EXPERTS "\"model_type\":\"gpt_oss\",\"num_local_experts\":4}",
    "{" SIZES LATENT EXPERTS "\"model_type\":\"deepseek_v2\",\"n_shared_experts\":1}",
    "{" SIZES LATENT EXPERTS "\"model_type\":\"deepseek_v3\",\"n_shared_experts\":2,\"q_lora_rank\":24,\"n_group\":1,"
    "\"topk_group\":1}",
    "{" SIZES HEADS DELTA EXPERTS "\"model_type\":\"qwen3_next\"}",
    "{" SIZES HEADS DELTA EXPERTS "\"model_type\":\"qwen3_5_moe_text\"}",
    "{" SIZES_OF(3, 203) HEADS SCAN "\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*-\"}",
    "{" SIZES HEADS SCAN EXPERTS "\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"*E\","
    "\"n_routed_experts\":4,\"n_shared_experts\":1,\"moe_shared_expert_intermediate_size\":64,"
    "\"moe_latent_size\":32}",
};

// ---- models with noise ----

struct noise {
    struct arena *arena;
    enum dtype dtype; // of matrices whose rows are whole blocks of it
};

// The same in every model for a tensor of that name.
static void make_noise(void *context, const struct tensor *of_file)
{
    const struct noise *noise = context;
    struct tensor *tensor = (struct tensor *)of_file;
    struct error err;
    if (tensor->data)
        return;
    if (tensor->rank > 1 && noise->dtype != DTYPE_F32 && tensor_cols(tensor) % dtype_table[noise->dtype].block == 0) {
        tensor->dtype = noise->dtype;
        assert_true(tensor_measure(tensor, &err));
    }
    uint64_t seed = 1;
    for (const char *c = tensor->name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    uint8_t *data = arena_new(noise->arena, tensor->bytes, 1);
    for (size_t i = 0; i < tensor->bytes; i++)
        data[i] = (uint8_t)random_between(&seed, 0, 255);
    tensor->data = (const char *)data;
}

static void describe(struct model *model, const char *config, enum dtype dtype)
{
    struct error err;
    struct checkpoint checkpoint = { .path = "config.json" };
    json_t *json;
    if (!json_read(bytes_of(config), &json, &err))
        fail_msg("%s", err.text);
    checkpoint.config = json;
    if (!model_describe(model, &checkpoint, &err))
        fail_msg("%s: %s", config, err.text);
    json_decref(json);
    struct noise noise = { &model->arena, dtype };
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        if (op->vector)
            tensor_source_visit(op->vector, make_noise, &noise);
        for (int j = 0; j < op->matrices; j++) {
            tensor_source_visit(op->matrix[j].tensor, make_noise, &noise);
            if (op->matrix[j].bias)
                tensor_source_visit(op->matrix[j].bias, make_noise, &noise);
        }
    }
}

// ---- parts of a tensor ----

// A vector is one row.
struct shape {
    int64_t matrices, rows, cols;
};

static struct shape shape_of(const struct tensor *tensor)
{
    return (struct shape){ tensor->rank == 3 ? tensor->shape[0] : 1, tensor->rank > 1 ? tensor_rows(tensor) : 1,
                           tensor->rank ? tensor_cols(tensor) : 1 };
}

static char *bytes_of_tensor(const struct tensor *tensor)
{
    struct shape shape = shape_of(tensor);
    char *bytes = malloc(tensor->bytes);
    tensor_source_read(tensor, 0, shape.matrices * shape.rows, bytes);
    return bytes;
}

// Puts a part where it belongs, behind those before it. Returns how many rows, or columns, that were.
static int64_t place(char *made, const struct tensor *whole, const struct tensor *part, int64_t first)
{
    struct shape all = shape_of(whole), own = shape_of(part);
    bool by_rows = own.cols == all.cols;
    size_t line = dtype_bytes(whole->dtype, (size_t)all.cols), own_line = dtype_bytes(part->dtype, (size_t)own.cols);
    char *bytes = bytes_of_tensor(part);
    assert_int_equal(own.matrices, all.matrices);
    assert_true(by_rows || own.rows == all.rows);
    for (int64_t i = 0; i < own.matrices * own.rows; i++) {
        int64_t row = by_rows ? i / own.rows * all.rows + first + i % own.rows : i;
        size_t at = (size_t)row * line + (by_rows ? 0 : dtype_bytes(whole->dtype, (size_t)first));
        memcpy(made + at, bytes + (size_t)i * own_line, own_line);
    }
    free(bytes);
    return by_rows ? own.rows : own.cols;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    struct shape x = shape_of(a), y = shape_of(b);
    return x.matrices == y.matrices && x.rows == y.rows && x.cols == y.cols;
}

// `again`: rows of each part that the one before has, too; NULL: none.
static void check_together(const struct tensor *whole, const struct tensor *const *parts, const int64_t *again,
                           int count)
{
    char *expected = bytes_of_tensor(whole), *made = calloc(1, whole->bytes);
    struct shape shape = shape_of(whole);
    int64_t placed = 0, wanted = shape_of(parts[0]).cols == shape.cols ? shape.rows : shape.cols;
    for (int i = 0; i < count; i++) {
        assert_int_equal(parts[i]->dtype, whole->dtype);
        placed = same_shape(parts[0], whole) ? 0 : placed - (again ? again[i] : 0);
        placed += place(made, whole, parts[i], placed);
        assert_true(placed <= wanted);
    }
    if (placed != wanted || memcmp(made, expected, whole->bytes))
        fail_msg("%s: %lld of %lld, or they are not its own", whole->name, (long long)placed, (long long)wanted);
    free(expected);
    free(made);
}

// Slices of plain tensors, of stacks, and of converted tensors, in several reads.
static void test_columns(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 2048, PARTS = 3, CUT = 640 };
    struct arena arena = { 0 };
    struct noise noise = { &arena, DTYPE_F32 };
    struct tensor files[PARTS],
        transposed = { .name = "transposed", .dtype = DTYPE_F16, .rank = 3, .shape = { 1, COLS, 2 * ROWS } };
    const struct tensor *parts[PARTS], *wholes[3];
    struct error err;
    for (int i = 0; i < PARTS; i++) {
        files[i] = (struct tensor){
            .name = arena_format(&arena, "%d", i), .dtype = DTYPE_Q4_0, .rank = 2, .shape = { ROWS, COLS }
        };
        assert_true(tensor_measure(&files[i], &err));
        make_noise(&noise, &files[i]);
        parts[i] = &files[i];
    }
    assert_true(tensor_measure(&transposed, &err));
    make_noise(&noise, &transposed);
    wholes[0] = parts[0];
    wholes[1] = tensor_source_stack(&arena, "stack", parts, PARTS);
    wholes[2] = tensor_source_transpose(&arena, &transposed, 1, 2);
    for (size_t i = 0; i < COUNT_OF(wholes); i++) {
        const struct tensor *cut[] = { tensor_source_columns(&arena, wholes[i], 0, CUT),
                                       tensor_source_columns(&arena, wholes[i], CUT, COLS - CUT) };
        assert_true(tensor_source_check(cut[0], &err));
        check_together(wholes[i], cut, NULL, 2);
    }
    arena_free(&arena);
}

// ---- parts of a model ----

struct ranks {
    struct model whole, model[RANKS_MAX];
    int count;
    int at[RANKS_MAX]; // the op that each is at
};

static const struct op *op_at(const struct ranks *ranks, int rank) { return &ranks->model[rank].ops[ranks->at[rank]]; }

// Ranks that share a key/value head have the same of its rows: of so many, those that the rank before has, too.
static int64_t rows_again(const struct ranks *ranks, int rank, enum buffer out, int64_t rows)
{
    const struct model_shard *own = &ranks->model[rank].shard, *before = &ranks->model[rank ? rank - 1 : 0].shard;
    bool is_kv = (out == BUFFER_K || out == BUFFER_V) && !ranks->whole.config.latent;
    return rank && is_kv
        ? rows / ranks->whole.config.kv_heads * (before->first_kv_head + before->kv_heads - own->first_kv_head)
        : 0;
}

static void check_matrix(const struct ranks *ranks, const struct op *whole, int number)
{
    const struct op_matrix *matrix = &whole->matrix[number];
    const struct tensor *parts[RANKS_MAX] = { 0 }, *biases[RANKS_MAX] = { 0 };
    int64_t again[RANKS_MAX] = { 0 };
    bool terms = false;
    for (int i = 0; i < ranks->count; i++) {
        const struct op_matrix *part = &op_at(ranks, i)->matrix[number];
        if (part->bias)
            assert_int_equal(tensor_cols(part->bias), tensor_rows(part->tensor));
        parts[i] = part->tensor;
        biases[i] = part->bias;
        again[i] = rows_again(ranks, i, matrix->out, tensor_rows(matrix->tensor));
        terms |= tensor_cols(part->tensor) < tensor_cols(matrix->tensor);
    }
    check_together(matrix->tensor, parts, again, ranks->count);
    if (!matrix->bias)
        return;
    for (int i = 1; i < ranks->count && terms; i++)
        assert_null(biases[i]); // of a sum, one adds it
    check_together(matrix->bias, biases, again, terms ? 1 : ranks->count);
}

// The op fits what it reads and where it writes, and an exchange follows where it wrote terms.
static void check_op(const struct model *model, const struct op *op, const struct op *whole)
{
    bool multiplies = op->kind == OP_LINEAR || op->kind == OP_EXPERTS;
    for (int i = 0; i < op->matrices && multiplies; i++) {
        const struct op_matrix *matrix = &op->matrix[i];
        int64_t rows = tensor_rows(matrix->tensor) * (op->kind == OP_EXPERTS ? op->groups : 1);
        assert_int_equal(op->width, tensor_cols(matrix->tensor));
        assert_true(rows <= model->buffer_width[matrix->out]);
        if (matrix->out == whole->matrix[i].out)
            continue;
        const struct op *exchange = op + 1;
        bool logits = matrix->out == BUFFER_LOGITS_PART;
        assert_int_equal(exchange->kind, logits ? OP_ALL_GATHER : OP_ALL_REDUCE);
        assert_int_equal(exchange->in, matrix->out);
        assert_int_equal(exchange->out, exchange->adds ? whole[1].out : whole->matrix[i].out);
        assert_int_equal(exchange->width, tensor_rows(whole->matrix[i].tensor));
    }
    if (op->kind == OP_ACT_MUL || op->kind == OP_ATTENTION)
        assert_true(op->width <= model->buffer_width[op->out]);
    if (op->kind == OP_ATTENTION && op->vector)
        assert_int_equal(tensor_values(op->vector), model->layer[op->layer].heads);
}

// Sums were added to the stream by the op before.
static bool is_done(const struct ranks *ranks, const struct op *whole)
{
    int before = ranks->at[0] - 1;
    return whole->kind == OP_ADD && before >= 0 && ranks->model[0].ops[before].adds;
}

static void open_ranks(struct ranks *ranks, const char *config, enum dtype dtype, int count)
{
    struct error err;
    *ranks = (struct ranks){ .count = count };
    describe(&ranks->whole, config, dtype);
    for (int i = 0; i < count; i++) {
        describe(&ranks->model[i], config, dtype);
        if (!model_shard(&ranks->model[i], i, count, &err))
            fail_msg("%s: %s", config, err.text);
    }
}

static void close_ranks(struct ranks *ranks)
{
    model_free(&ranks->whole);
    for (int i = 0; i < ranks->count; i++)
        model_free(&ranks->model[i]);
}

// The first of its heads has the first key/value head, and the last one the last.
static void check_groups(const struct layer *layer)
{
    assert_in_range(layer->lead, 0, layer->group - 1);
    assert_int_equal((layer->heads - 1 + layer->lead) / layer->group, layer->kv_heads - 1);
}

static void check_model(const char *config, enum dtype dtype, int count)
{
    struct ranks ranks;
    int64_t reduced = 0;
    int heads = 0, first_token = 0;
    open_ranks(&ranks, config, dtype, count);
    for (int i = 0; i < ranks.whole.op_count; i++) {
        const struct op *whole = &ranks.whole.ops[i];
        const struct tensor *vectors[RANKS_MAX] = { 0 };
        if (is_done(&ranks, whole))
            continue;
        for (int rank = 0; rank < count; rank++) {
            const struct op *op = op_at(&ranks, rank);
            assert_int_equal(op->kind, whole->kind);
            check_op(&ranks.model[rank], op, whole);
            vectors[rank] = op->vector;
            if (op->kind == OP_EMBED) {
                assert_int_equal(op->first, first_token);
                first_token += (int)op->matrix[0].tensor->shape[0];
            }
        }
        for (int j = 0; j < whole->matrices; j++)
            check_matrix(&ranks, whole, j);
        if (whole->vector)
            check_together(whole->vector, vectors, NULL, count);
        for (int rank = 0; rank < count; rank++) {
            const struct op *next = op_at(&ranks, rank) + 1;
            bool exchanges = ranks.at[rank] + 1 < ranks.model[rank].op_count
                && (next->kind == OP_ALL_REDUCE || next->kind == OP_ALL_GATHER);
            reduced += rank == 0 && exchanges && next->kind == OP_ALL_REDUCE ? next->width : 0;
            ranks.at[rank] += exchanges ? 2 : 1;
        }
    }
    for (int rank = 0; rank < count; rank++) {
        const struct model *model = &ranks.model[rank];
        assert_int_equal(ranks.at[rank], model->op_count);
        assert_int_equal(model->shard.exchanged_bytes, reduced * (count - 1) * (int64_t)sizeof(float));
        check_groups(&model->layer[0]);
        heads += model->shard.heads;
    }
    bool together = !strcmp(ranks.whole.config.architecture, "olmo2");
    assert_int_equal(heads, ranks.whole.config.heads * (together ? count : 1));
    close_ranks(&ranks);
}

static void test_architectures(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(configs); i++)
        for (int count = 2; count <= RANKS_MAX; count++)
            check_model(configs[i], DTYPE_F32, count);
}

// Blocks of 32 and 64 columns, which heads of 32 fill in ones and twos.
static void test_blocks(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = { DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_NVFP4_GGUF, DTYPE_MXFP4_GGUF };
    static const char *const models[] = {
        "{" SIZES "\"model_type\":\"llama\",\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":32,"
        "\"intermediate_size\":320}",
        "{" SIZES EXPERTS "\"model_type\":\"mixtral\",\"num_attention_heads\":8,\"num_key_value_heads\":4,"
        "\"head_dim\":32,\"intermediate_size\":320,\"num_local_experts\":4}",
    };
    for (size_t i = 0; i < COUNT_OF(models); i++)
        for (size_t j = 0; j < COUNT_OF(dtypes); j++)
            for (int count = 2; count <= 4; count++)
                check_model(models[i], dtypes[j], count);
}

// ---- who gets what ----

static const struct {
    int heads, kv_heads, ranks;
    int first[4], count[4]; // heads of each rank
    int kv[4], kv_count[4]; // and their key/value heads
    int group[4], lead[4];
} head_splits[] = {
    { 9, 3, 2, { 0, 4 }, { 4, 5 }, { 0, 1 }, { 2, 2 }, { 3, 3 }, { 0, 1 } }, // one is divided
    { 9, 3, 3, { 0, 3, 6 }, { 3, 3, 3 }, { 0, 1, 2 }, { 1, 1, 1 }, { 3, 3, 3 } },
    { 9, 3, 4, { 0, 2, 4, 6 }, { 2, 2, 2, 3 }, { 0, 0, 1, 2 }, { 1, 2, 1, 1 }, { 2, 3, 2, 3 }, { 0, 2 } },
    { 8, 8, 4, { 0, 2, 4, 6 }, { 2, 2, 2, 2 }, { 0, 2, 4, 6 }, { 2, 2, 2, 2 }, { 1, 1, 1, 1 } },
    { 8, 8, 3, { 0, 2, 5 }, { 2, 3, 3 }, { 0, 2, 5 }, { 2, 3, 3 }, { 1, 1, 1 } },
    { 8, 1, 3, { 0, 2, 5 }, { 2, 3, 3 }, { 0, 0, 0 }, { 1, 1, 1 }, { 2, 3, 3 } },
    { 16, 4, 3, { 0, 5, 10 }, { 5, 5, 6 }, { 0, 1, 2 }, { 2, 2, 2 }, { 4, 4, 4 }, { 0, 1, 2 } },
    { 32, 8, 3, { 0, 8, 20 }, { 8, 12, 12 }, { 0, 2, 5 }, { 2, 3, 3 }, { 4, 4, 4 } }, // else one would have four
};

static void test_heads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(head_splits); i++) {
        char config[512];
        struct ranks ranks;
        snprintf(config, sizeof config,
                 "{" SIZES "\"model_type\":\"llama\",\"num_attention_heads\":%d,"
                 "\"num_key_value_heads\":%d,\"head_dim\":16,\"intermediate_size\":96}",
                 head_splits[i].heads, head_splits[i].kv_heads);
        open_ranks(&ranks, config, DTYPE_F32, head_splits[i].ranks);
        for (int rank = 0; rank < head_splits[i].ranks; rank++) {
            const struct model_shard *shard = &ranks.model[rank].shard;
            assert_int_equal(shard->first_head, head_splits[i].first[rank]);
            assert_int_equal(shard->heads, head_splits[i].count[rank]);
            assert_int_equal(shard->first_kv_head, head_splits[i].kv[rank]);
            assert_int_equal(shard->kv_heads, head_splits[i].kv_count[rank]);
            assert_int_equal(ranks.model[rank].layer[0].group, head_splits[i].group[rank]);
            assert_int_equal(ranks.model[rank].layer[0].lead, head_splits[i].lead[rank]);
        }
        close_ranks(&ranks);
    }
}

static const struct {
    const char *config;
    enum dtype dtype;
    int ranks;
    const char *says;
} refused[] = {
    { "{" SIZES HEADS "\"model_type\":\"llama\"}", DTYPE_F32, 7, "it can among 1-6" },
    { "{" SIZES HEADS "\"model_type\":\"llama\"}", DTYPE_F32, 65, "there may be 64 at most" },
    { "{" SIZES HEADS "\"model_type\":\"olmo2\"}", DTYPE_F32, 13, "the feed forward of layer 0 has 96 columns" },
    { "{" SIZES HEADS EXPERTS "\"model_type\":\"qwen3_moe\",\"num_experts\":4}", DTYPE_F32, 8, "it can among 1-6" },
    { "{" SIZES HEADS "\"model_type\":\"llama\"}", DTYPE_Q8_0, 4, "it can among 1-3" }, // two heads to a block
    { "{" SIZES_OF(2, 30) HEADS "\"model_type\":\"llama\"}", DTYPE_F32, 3, "its vocabulary of 30 tokens" },
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        struct model model;
        struct error err;
        describe(&model, refused[i].config, refused[i].dtype);
        assert_false(model_shard_fits(&model, refused[i].ranks, &err));
        assert_false(model_shard(&model, 0, refused[i].ranks, &err));
        assert_says(err, refused[i].says);
        assert_int_equal(model.shard.ranks, 0); // it is as it was
        model_free(&model);
    }
}

static void test_one_rank(void **state)
{
    (void)state;
    struct model model;
    struct error err;
    describe(&model, configs[0], DTYPE_F32);
    int ops = model.op_count;
    assert_true(model_shard(&model, 0, 1, &err));
    assert_int_equal(model.op_count, ops);
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures), cmocka_unit_test(test_blocks),   cmocka_unit_test(test_heads),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_one_rank), cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
