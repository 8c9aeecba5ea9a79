// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/ssm.h"
