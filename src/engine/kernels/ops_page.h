// SPDX-License-Identifier: Apache-2.0
// engine/kernels/ops_page.h: the generator of doc/ops.md from the table of ops (kernel/op.h).
#ifndef ENGINE_KERNELS_OPS_PAGE_H
#define ENGINE_KERNELS_OPS_PAGE_H

#include "base/strbuf.h"

void ops_page_print(struct strbuf *out);

#endif
