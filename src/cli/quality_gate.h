// SPDX-License-Identifier: Apache-2.0
// cli/quality_gate.h: the quality gate of `nibble serve`: the planned KV cache is measured on the built-in text before
// a port opens, against one that is not quantised.
#ifndef CLI_QUALITY_GATE_H
#define CLI_QUALITY_GATE_H

#include "nibble.h"

// True: the mean KL divergence, *kld, is at most `limit`. False: the sentence names the layers that cost most and, if
// one was found by measuring, a change that would help.
bool quality_gate(const char *model, const struct nibble_options *options, double limit, double *kld,
                  struct error *err);

#endif
