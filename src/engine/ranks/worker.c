// SPDX-License-Identifier: Apache-2.0
#include "engine/ranks/worker.h"

#include <stdlib.h>

#include "engine/ranks/protocol.h"

enum { ENGINES_MAX = 8 }; // open at once

struct worker_engine {
    int number;
    struct checkpoint checkpoint;
    struct engine engine;
    struct arena arena; // of its options
};

struct worker {
    struct group *group;
    struct worker_engine *engines[ENGINES_MAX];
};

static struct worker_engine **find(struct worker *worker, int number)
{
    for (int i = 0; i < ENGINES_MAX; i++)
        if (worker->engines[i] && worker->engines[i]->number == number)
            return &worker->engines[i];
    return NULL;
}

static void close_engine(struct worker_engine **place)
{
    struct worker_engine *opened_engine = *place;
    engine_close(&opened_engine->engine);
    checkpoint_close(&opened_engine->checkpoint);
    arena_free(&opened_engine->arena);
    free(opened_engine);
    *place = NULL;
}

// Opens the engine that rank 0 opens. A failure is agreed on by both (group_agree) and does not end the worker.
static bool open_engine(struct worker *worker, struct bytes message, int number, struct error *err)
{
    struct worker_engine *opened_engine = memory_new(1, sizeof *opened_engine);
    struct engine_options options;
    const char *path;
    int place = 0;
    while (place < ENGINES_MAX && worker->engines[place])
        place++;
    opened_engine->number = number;
    bool read = protocol_read_open(message, &opened_engine->arena, &path, &options);
    options.group = worker->group;
    bool opened = place < ENGINES_MAX && read
        && checkpoint_open(&opened_engine->checkpoint, path, CHECKPOINT_HEADERS, err);
    if (!opened && (place == ENGINES_MAX || !read))
        fail(err, "what rank 0 said about an engine could not be understood");
    if (group_agree(worker->group, opened, err)
        && engine_open(&opened_engine->engine, &opened_engine->checkpoint, &options, err)) {
        worker->engines[place] = opened_engine;
        return true;
    }
    if (opened)
        checkpoint_close(&opened_engine->checkpoint);
    arena_free(&opened_engine->arena);
    free(opened_engine);
    return !ranks_lost(worker->group->ranks);
}

static bool run_step(struct worker *worker, struct bytes message, int number, struct error *err)
{
    struct worker_engine **place = find(worker, number);
    struct engine_result ignored;
    if (!place || !protocol_read_step(message, &(*place)->engine, &(*place)->engine.tables))
        return fail(err, "what rank 0 said about a step could not be understood");
    int step = engine_start(&(*place)->engine, err);
    return step && engine_finish(&(*place)->engine, step, &ignored, err);
}

static bool execute(struct worker *worker, struct bytes message, const struct protocol_head *head, struct error *err)
{
    struct worker_engine **place = find(worker, head->engine);
    if (head->kind == PROTOCOL_OPEN)
        return open_engine(worker, message, head->engine, err);
    if (head->kind == PROTOCOL_STEP)
        return run_step(worker, message, head->engine, err);
    if (place)
        close_engine(place);
    return true;
}

bool worker_run(struct group *group, struct error *err)
{
    struct worker worker = { .group = group };
    struct strbuf received = { 0 };
    struct protocol_head head = { 0 };
    bool ok = true;
    while (ok && head.kind != PROTOCOL_END) {
        ok = ranks_receive(group->ranks, &received, err);
        struct bytes message = strbuf_bytes(&received);
        if (ok && !protocol_read_head(&message, &head))
            ok = fail(err, "what rank 0 said could not be understood");
        if (ok && head.kind != PROTOCOL_END)
            ok = execute(&worker, message, &head, err);
    }
    if (!ok)
        ranks_give_up(group->ranks, err->text);
    for (int i = 0; i < ENGINES_MAX; i++)
        if (worker.engines[i])
            close_engine(&worker.engines[i]);
    strbuf_free(&received);
    return ok;
}
