// SPDX-License-Identifier: Apache-2.0
#include "engine/ranks/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENSSL_SUPPRESS_DEPRECATED // as in kv/prefix.c
#include <openssl/sha.h>

#include "base/file.h"
#include "base/sha256.h"
#include "ranks/mpi.h"
#include "engine/calibration/file.h"

enum { SENTENCE_MAX = 1024 };

// ---- devices ----

bool group_share_device(struct device *device, const char *word, int here, int *sharers, struct error *err)
{
    *sharers = here > 1 && !device->imagined ? here : 1;
    bool any = !word || !strcmp(word, "auto") || !strcmp(word, "cuda");
    if (*sharers > 1 && device->kind == DEVICE_CUDA && any) {
        struct cuda_report report;
        char own[24];
        device_probe_cuda(&report);
        int count = report.count > 0 ? report.count : 1, number = mpi_launched_here() % count;
        snprintf(own, sizeof own, "cuda:%d", number);
        if (!device_parse(device, own, err))
            return false;
        *sharers = (here - number + count - 1) / count;
    }
    device->memory_bytes /= (size_t)*sharers;
    device->memory_free_bytes /= (size_t)*sharers;
    return true;
}

// ---- agreeing ----

struct verdict {
    bool ok, usage;
    char sentence[SENTENCE_MAX];
};

bool group_agree(struct group *group, bool ok, struct error *err)
{
    if (!group)
        return ok;
    struct verdict mine = { .ok = ok, .usage = !ok && err->usage };
    snprintf(mine.sentence, sizeof mine.sentence, "%.*s", SENTENCE_MAX - 1, ok ? "" : err->text);
    struct verdict *all = memory_new((size_t)group_size(group), sizeof *all);
    bool agreed = ranks_all_gather(group->ranks, &mine, all, sizeof mine, sizeof mine, err);
    for (int i = 0; agreed && i < group_size(group); i++) {
        if (all[i].ok)
            continue;
        agreed = fail(err, "%s", all[i].sentence);
        err->usage = all[i].usage;
        if (i)
            fail_within(err, "rank %d on %s", i, ranks_host(group->ranks, i));
    }
    free(all);
    return agreed;
}

// A word about each thing that must be the same, and what it is here.
struct likeness {
    const char *what;
    struct calibration_key hash; // any SHA-256
};

static struct calibration_key hash_of(struct bytes bytes)
{
    struct calibration_key key;
    sha256_of(bytes, key.bytes);
    return key;
}

// The first rank that differs from rank 0, and in what.
static bool compare(struct group *group, const struct likeness *mine, int count, struct error *err)
{
    int size = group_size(group);
    enum { LIKENESSES_MAX = 4 };
    struct seen {
        struct calibration_key hashes[LIKENESSES_MAX];
    } own = { 0 }, *all = memory_new((size_t)size, sizeof *all);
    for (int i = 0; i < count; i++)
        own.hashes[i] = mine[i].hash;
    bool ok = ranks_all_gather(group->ranks, &own, all, sizeof own, sizeof own, err);
    for (int i = 1; ok && i < size; i++)
        for (int j = 0; ok && j < count; j++)
            if (memcmp(&all[i].hashes[j], &all[0].hashes[j], sizeof all[i].hashes[j]))
                ok = fail(err, "rank %d on %s has %s than rank 0 on %s; all ranks must have the same", i,
                          ranks_host(group->ranks, i), mine[j].what, ranks_host(group->ranks, 0));
    free(all);
    return ok;
}

bool group_compare(struct group *group, const char *flags, struct error *err)
{
    struct file program;
    if (!group_agree(group, file_open(&program, "/proc/self/exe", err), err))
        return false;
    const struct likeness likenesses[] = { { "another build", hash_of(program.content) },
                                           { "other flags", hash_of(bytes_of(flags)) } };
    file_close(&program);
    return compare(group, likenesses, 2, err);
}

// ---- plans ----

static void add_number(SHA256_CTX *context, int64_t number) { SHA256_Update(context, &number, sizeof number); }

// The hash of everything that a plan decides alike for all ranks. Heads, kernels and memory are each rank's own and
// left out.
static struct calibration_key hash_plan(const struct plan *plan)
{
    struct calibration_key key;
    SHA256_CTX context;
    SHA256_Init(&context);
    add_number(&context, plan->class_count);
    add_number(&context, plan->max_num_seqs);
    add_number(&context, plan->batch_tokens);
    add_number(&context, plan->outputs);
    add_number(&context, plan->scale_search);
    add_number(&context, plan->model->op_count);
    add_number(&context, plan->device.kind);
    for (int i = 0; i < plan->class_count; i++) {
        add_number(&context, plan->classes[i].kind.page_tokens);
        add_number(&context, plan->classes[i].kind.window);
        add_number(&context, plan->classes[i].kind.end);
        add_number(&context, plan->classes[i].layout.k.dtype);
        add_number(&context, plan->classes[i].layout.v.dtype);
    }
    for (int i = 0; i < plan->model->config.layers; i++) {
        add_number(&context, plan->layer[i].class_index);
        add_number(&context, plan->layer[i].sink_class);
        add_number(&context, plan->layer[i].transform);
    }
    SHA256_Final(key.bytes, &context);
    return key;
}

bool group_agree_plan(struct group *group, const struct checkpoint *checkpoint, struct plan *plan, struct error *err)
{
    if (!group)
        return true;
    const struct likeness likenesses[] = { { "other files", calibration_hash_checkpoint(checkpoint) },
                                           { "another plan", hash_plan(plan) } };
    struct plan_share mine = plan_share_of(plan);
    struct plan_share *all = memory_new((size_t)group_size(group), sizeof *all);
    bool ok = compare(group, likenesses, 2, err)
        && ranks_all_gather(group->ranks, &mine, all, sizeof mine, sizeof mine, err);
    for (int i = 0; ok && i < group_size(group); i++)
        mine = plan_share_least(mine, all[i]);
    if (ok)
        plan_take_share(plan, &mine);
    free(all);
    return ok;
}
