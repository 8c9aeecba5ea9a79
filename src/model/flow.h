// SPDX-License-Identifier: Apache-2.0
// model/flow.h: who reads what the ops of a list have written, so that what nobody reads need not be written.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

// Does an op after number `from` read the buffer before it is written again?
bool flow_is_read(const struct model *model, int from, enum buffer buffer);

#endif
