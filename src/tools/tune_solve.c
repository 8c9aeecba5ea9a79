// SPDX-License-Identifier: Apache-2.0
#include "tools/tune_solve.h"

#include <math.h>

// Returns the next format after the chosen one: the one that saves most for each bit more; -1: none saves anything.
// From the fewest bits up, these steps follow the lower convex hull of an item.
static int next_format(const struct tune_item *item, int formats, double *gain)
{
    int next = -1;
    *gain = 0;
    for (int i = 0; i < formats; i++) {
        double more = item->bits[i] - item->bits[item->chosen], saved = item->kld[item->chosen] - item->kld[i];
        if (more > 0 && saved > 0 && saved / more > *gain) {
            *gain = saved / more;
            next = i;
        }
    }
    return next;
}

// Returns the format of fewest bits, the better one of equals.
static int cheapest_format(const struct tune_item *item, int formats)
{
    int best = 0;
    for (int i = 1; i < formats; i++)
        if (item->bits[i] < item->bits[best] || (item->bits[i] == item->bits[best] && item->kld[i] < item->kld[best]))
            best = i;
    return best;
}

double tune_bits(const struct tune_item *items, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += items[i].bits[items[i].chosen];
    return sum / count;
}

double tune_kld(const struct tune_item *items, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += items[i].kld[items[i].chosen];
    return sum;
}

// Takes one step for the item that gains most within the bits. False: there is none.
static bool improve(struct tune_item *items, int count, int formats, double bits_left)
{
    int best = -1, to = -1;
    double most = 0;
    for (int i = 0; i < count; i++) {
        double gain;
        int next = next_format(&items[i], formats, &gain);
        if (next >= 0 && gain > most && items[i].bits[next] - items[i].bits[items[i].chosen] <= bits_left) {
            most = gain;
            best = i;
            to = next;
        }
    }
    if (best >= 0)
        items[best].chosen = to;
    return best >= 0;
}

bool tune_solve(struct tune_item *items, int count, int formats, double bits_max, double kld_max)
{
    const double rounding = 1e-9;
    for (int i = 0; i < count; i++)
        items[i].chosen = cheapest_format(&items[i], formats);
    if (bits_max) {
        if (tune_bits(items, count) > bits_max + rounding)
            return false;
        while (improve(items, count, formats, (bits_max - tune_bits(items, count)) * count + rounding))
            ;
        return true;
    }
    while (tune_kld(items, count) > kld_max && improve(items, count, formats, INFINITY))
        ;
    return tune_kld(items, count) <= kld_max;
}
