// SPDX-License-Identifier: Apache-2.0
#include "engine/ranks/worker.h"

#include <stdlib.h>

#include "engine/ranks/protocol.h"

enum { ENGINES_MAX = 8 }; // open at once

struct followed {
    int number;
    struct checkpoint checkpoint;
    struct engine engine;
    struct arena arena; // of its options
};

struct follower {
    struct group *group;
    struct followed *engines[ENGINES_MAX];
};

static struct followed **find(struct follower *follower, int number)
{
    for (int i = 0; i < ENGINES_MAX; i++)
        if (follower->engines[i] && follower->engines[i]->number == number)
            return &follower->engines[i];
    return NULL;
}

static void close_engine(struct followed **place)
{
    struct followed *followed = *place;
    engine_close(&followed->engine);
    checkpoint_close(&followed->checkpoint);
    arena_free(&followed->arena);
    free(followed);
    *place = NULL;
}

// Opens what rank 0 opens at this moment. That it fails is for both to know (group_agree), and no reason to leave.
static bool open_engine(struct follower *follower, struct bytes message, int number, struct error *err)
{
    struct followed *followed = memory_new(1, sizeof *followed);
    struct engine_options options;
    const char *path;
    int place = 0;
    while (place < ENGINES_MAX && follower->engines[place])
        place++;
    followed->number = number;
    bool read = protocol_read_open(message, &followed->arena, &path, &options);
    options.group = follower->group;
    bool opened = place < ENGINES_MAX && read && checkpoint_open(&followed->checkpoint, path, CHECKPOINT_HEADERS, err);
    if (!opened && (place == ENGINES_MAX || !read))
        fail(err, "what rank 0 said about an engine could not be understood");
    if (group_agree(follower->group, opened, err)
        && engine_open(&followed->engine, &followed->checkpoint, &options, err)) {
        follower->engines[place] = followed;
        return true;
    }
    if (opened)
        checkpoint_close(&followed->checkpoint);
    arena_free(&followed->arena);
    free(followed);
    return !ranks_lost(follower->group->ranks);
}

static bool run_step(struct follower *follower, struct bytes message, int number, struct error *err)
{
    struct followed **place = find(follower, number);
    struct engine_result ignored;
    if (!place || !protocol_read_step(message, &(*place)->engine, &(*place)->engine.tables))
        return fail(err, "what rank 0 said about a step could not be understood");
    int step = engine_start(&(*place)->engine, err);
    return step && engine_finish(&(*place)->engine, step, &ignored, err);
}

static bool obey(struct follower *follower, struct bytes message, const struct protocol_head *head, struct error *err)
{
    struct followed **place = find(follower, head->engine);
    if (head->kind == PROTOCOL_OPEN)
        return open_engine(follower, message, head->engine, err);
    if (head->kind == PROTOCOL_STEP)
        return run_step(follower, message, head->engine, err);
    if (place)
        close_engine(place);
    return true;
}

bool follow(struct group *group, struct error *err)
{
    struct follower follower = { .group = group };
    struct strbuf received = { 0 };
    struct protocol_head head = { 0 };
    bool ok = true;
    while (ok && head.kind != PROTOCOL_END) {
        ok = ranks_receive(group->ranks, &received, err);
        struct bytes message = strbuf_bytes(&received);
        if (ok && !protocol_read_head(&message, &head))
            ok = fail(err, "what rank 0 said could not be understood");
        if (ok && head.kind != PROTOCOL_END)
            ok = obey(&follower, message, &head, err);
    }
    if (!ok)
        ranks_give_up(group->ranks, err->text);
    for (int i = 0; i < ENGINES_MAX; i++)
        if (follower.engines[i])
            close_engine(&follower.engines[i]);
    strbuf_free(&received);
    return ok;
}
