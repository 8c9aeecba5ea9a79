// SPDX-License-Identifier: Apache-2.0
// server/page.h: web/index.html, put into the program by the build.
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include <stddef.h>

extern const char page_html[];
extern const size_t page_html_len;

#endif
