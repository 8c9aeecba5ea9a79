// SPDX-License-Identifier: Apache-2.0
// model/flow.h: data flow over the list of ops, from the roles of their operands (kernel/op.h): a result that no op
// reads need not be written.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

// The buffer that an operand is bound to; of an operand of each matrix, that matrix's. False: it is bound to none.
bool flow_buffer(const struct op *op, const struct operand *operand, int matrix, enum buffer *out);

bool flow_reads(const struct op *op, const struct operand *operand);

// Does an op after number `from` read the buffer before it is written again?
bool flow_is_read(const struct model *model, int from, enum buffer buffer);

#endif
