// SPDX-License-Identifier: Apache-2.0
// server/responses.h: OpenAI's Responses API (/v1/responses): a request is rewritten as a chat, its answer is written
// as output items or as the events of a stream, and what is stored is looked up by id.
#ifndef SERVER_RESPONSES_H
#define SERVER_RESPONSES_H

#include "server/job.h"
#include "server/responses_store.h"

struct response {
    struct response_record *record;
    bool stored, truncates;
    int max_tokens;   // that were asked for; 0: none were
    json_t *recalled; // stored items by id, while a request that refers to them is read; and NULL

    // The writer's.
    enum { STREAM_CREATED, STREAM_IN_PROGRESS, STREAM_ITEMS, STREAM_END, STREAM_OVER } phase;
    int sequence; // of the next event
    int part;     // that is being streamed
    int items;    // that are begun
    int logged;   // tokens of the answer whose logprobs are streamed
    bool final;   // of the object that is being written
};

void response_free(struct job *job);

// Was it cancelled by its id?
static inline bool response_is_cancelled(const struct job *job)
{
    return job->response && atomic_load(&job->response->record->cancelled);
}

// ---- reading ------------------------------------------------------------------------------------------------------

bool responses_translate(struct job *job);
bool responses_read(struct job *job); // as read_chat; drops the oldest messages where that is asked for

// Requests without a chat: the tokens of an input, and what is stored.
bool responses_count_tokens(struct job *job);
bool responses_get(struct job *job);
bool responses_list_items(struct job *job);
bool responses_delete(struct job *job);
bool responses_cancel(struct job *job);

// The parts of a request, each from job->json to the chat that it becomes.
bool responses_read_input(struct job *job, json_t *chat);
bool responses_read_tools(struct job *job, json_t *chat);
bool responses_read_text(struct job *job, json_t *chat);
bool responses_read_reasoning(struct job *job, json_t *chat);

// All items up to and with a record's output (a new list); NULL: there is no room to read them.
json_t *responses_history(struct job *job, const struct response_record *record);
// The stored item of this id (new reference); NULL: there is none, or no room to read it.
json_t *responses_find_item(struct job *job, struct bytes id);
// An input item as it is listed: with an id, a status, and its content as a list (new reference).
json_t *responses_item(const json_t *item, const char *digits, size_t index);
// The members of a response object that repeat the request, into record->echo.
void responses_write_echo(struct job *job);

bool responses_fail_unknown(struct job *job, struct bytes id); // 404; always false

// ---- writing ------------------------------------------------------------------------------------------------------

bool responses_stream(struct job *job, struct strbuf *out);

// The response object in slices, as it stands now (without output, while it is in progress) or at the end, when what is
// stored is completed with it. True: it is complete.
bool responses_write_object(struct job *job, bool final, struct strbuf *out);
void responses_open_object(const struct response_record *record, bool stored, struct strbuf *out);
void responses_write_status(enum response_status status, const struct job *failed, struct strbuf *out);
enum response_status responses_final_status(const struct job *job);
// An answer of no text is one empty message.
void responses_add_empty(struct job *job);

// The text of a part with JSON around it, in slices: itself, within a content part (a call has none), within an item.
enum response_frame { FRAME_TEXT, FRAME_PART, FRAME_ITEM, FRAMES };
bool responses_write_frame(struct job *job, int part, int item, enum response_frame frame, struct strbuf *out);
void responses_begin_item(const struct job *job, const struct answer_part *part, int item, struct strbuf *out);
void responses_add_part(enum part_kind kind, struct strbuf *out); // without a text, as it begins
void responses_write_item_id(const struct job *job, enum part_kind kind, int item, struct strbuf *out); // "msg_..."

#endif
