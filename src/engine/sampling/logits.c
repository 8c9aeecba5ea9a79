// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/logits.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool logits_finite(const float *logits, int vocabulary)
{
    int finite = 1;
    for (int i = 0; i < vocabulary; i++)
        finite &= fabsf(logits[i]) <= FLT_MAX;
    return finite;
}

// The highest value, in lanes that a compiler makes vectors of.
static float highest_of(const float *logits, int vocabulary)
{
    enum { LANES = 16 };
    float lanes[LANES], highest = -INFINITY;
    int id = 0;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = -INFINITY;
    for (; id + LANES <= vocabulary; id += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = logits[id + lane] > lanes[lane] ? logits[id + lane] : lanes[lane];
    for (int lane = 0; lane < LANES; lane++)
        highest = lanes[lane] > highest ? lanes[lane] : highest;
    for (; id < vocabulary; id++)
        highest = logits[id] > highest ? logits[id] : highest;
    return highest;
}

int32_t logits_most_likely(const float *logits, int vocabulary)
{
    float highest = highest_of(logits, vocabulary);
    for (int32_t id = 0; id < vocabulary; id++)
        if (logits[id] == highest)
            return id;
    return 0; // none is a number
}

double logits_logsumexp(const float *logits, int vocabulary)
{
    float highest = logits[logits_most_likely(logits, vocabulary)];
    double sum = 0;
    for (int i = 0; i < vocabulary; i++)
        sum += expf(logits[i] - highest);
    return highest + log(sum);
}

static bool before(struct candidate a, struct candidate b)
{
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// Restores a min-heap below `at`: its root is the worst candidate kept, which the next better one replaces.
static void sift_down(struct candidate *heap, int count, int at)
{
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child], heap[child + 1]))
            child++;
        if (!before(heap[at], heap[child]))
            return;
        struct candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

static void heapify(struct candidate *heap, int count)
{
    for (int at = count / 2 - 1; at >= 0; at--)
        sift_down(heap, count, at);
}

// Heapsort: the likeliest comes first.
static void sort_heap(struct candidate *heap, int count)
{
    for (int left = count - 1; left > 0; left--) {
        struct candidate least = heap[0];
        heap[0] = heap[left];
        heap[left] = least;
        sift_down(heap, left, 0);
    }
}

int logits_top(const float *logits, int vocabulary, struct candidate *top, int count)
{
    int found = 0;
    int32_t id = 0;
    for (; id < vocabulary && found < count; id++)
        if (logits[id] > -INFINITY)
            top[found++] = (struct candidate){ logits[id], id };
    heapify(top, found);
    for (; id < vocabulary && found; id++)
        if (logits[id] > top[0].value) {
            top[0] = (struct candidate){ logits[id], id };
            sift_down(top, found, 0);
        }
    sort_heap(top, found);
    return found;
}

int candidates_top(const struct candidate *candidates, int candidate_count, struct candidate *top, int count)
{
    int found = count < candidate_count ? count : candidate_count;
    memmove(top, candidates, (size_t)found * sizeof *top);
    heapify(top, found);
    for (int i = found; i < candidate_count && found; i++)
        if (before(candidates[i], top[0])) {
            top[0] = candidates[i];
            sift_down(top, found, 0);
        }
    sort_heap(top, found);
    return found;
}
