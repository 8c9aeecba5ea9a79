// SPDX-License-Identifier: Apache-2.0
// sim/traffic.h: who will ask what, and when. A session is a conversation: its prompt begins with one of a few system
// prompts and grows by what was answered and asked since; a turn comes some time after the answer to the one before.
// All of it follows from the seed and is made beforehand, so that every server and every way of routing, and a real
// server as well, gets the same.
#ifndef SIM_TRAFFIC_H
#define SIM_TRAFFIC_H

#include <stdint.h>
#include <stdio.h>

enum { TRAFFIC_SESSIONS_MAX = 1 << 22, TRAFFIC_SYSTEMS_MAX = 1 << 16, TRAFFIC_TURNS_MAX = 64, TRAFFIC_IDS = 1 << 30 };
enum { TRAFFIC_CALM_SECONDS = 20, TRAFFIC_SURGE_SECONDS = 5 }; // in the mean (exponential), alternating

// Log-normal: of how many tokens, in the median, and the deviation of their logarithms.
struct lengths {
    double median, spread;
};

struct traffic_options {
    uint64_t seed;
    int sessions_max; // 0: as many as begin
    double seconds;   // none begins later; 0: sessions_max says where it ends
    double rate;      // sessions that begin in a second
    double variation; // deviation over mean of the time between two; 1: Poisson, else gamma
    double surge;     // so many times as many as in calm; the mean stays. 1: it is always calm
    double turns;     // of a session, in the mean (geometric)
    double think;     // seconds from an answer to the next turn, in the mean (exponential)
    int systems;      // system prompts, of which the n-th is as popular as n^-skew
    double skew;
    double greet; // at first each is asked by itself, so many seconds apart; 0: it is not
    struct lengths system, user, answer;
    int context; // a session ends before it has more tokens
};

struct turn {
    int user, answer; // tokens that are asked with and answered
    double think;     // seconds before it, after the last answer
};

struct session {
    double begin;  // seconds
    uint64_t name; // of its own text
    int system, system_tokens;
    int first_turn, turns;
};

struct traffic {
    struct session *sessions;
    struct turn *turns;
    int session_count, turn_count;
};

void traffic_open(struct traffic *traffic, const struct traffic_options *options);
void traffic_close(struct traffic *traffic);

// Tokens [first, end) of a session's text, prompts and answers.
void traffic_text(const struct session *session, int first, int end, int32_t *ids);

void traffic_print(const struct traffic *traffic, FILE *out); // a line of JSON for each session

#endif
