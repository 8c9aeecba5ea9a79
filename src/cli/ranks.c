// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "cli/cli.h"

enum { STATUS_NOT_FOUND = 127, STATUS_SIGNAL = 128, TERMINATE_MS = 300, BACKGROUND_MS = 200, COUNT_WORD = 2 };

// mpirun forwards SIGUSR1 and SIGUSR2 to all ranks. On SIGTERM and SIGINT it would kill them after a second, so these
// are carried by the former.
static const struct {
    int signal, carrier;
} carried[] = { { SIGTERM, SIGUSR1 }, { SIGINT, SIGUSR2 } };
enum { CARRIED = sizeof carried / sizeof *carried };

// Reads the command line as it was given, words separated by NUL, without the program itself.
static bool read_line(struct nibble_text *line, struct error *err)
{
    if (!cli_read("/proc/self/cmdline", line, err))
        return false;
    size_t first = line->len ? strlen(line->data) + 1 : 0;
    line->len = line->len > first ? line->len - first : 0;
    memmove(line->data, line->data + first, line->len);
    return true;
}

// ---- in a rank ----------------------------------------------------------------------------------------------------

static void on_carrier(int signal)
{
    for (int i = 0; i < CARRIED; i++)
        if (signal == carried[i].carrier)
            raise(carried[i].signal);
}

// mpirun may send SIGTERM because a rank died before this process has noticed it. The signal takes effect after
// TERMINATE_MS, so that the failure can be reported first; a process that has lost a rank ignores SIGTERM until it has
// done so (ranks/failure_detector.h).
static void on_terminate(int number)
{
    (void)number;
    // A plain system call on Linux. NOLINTNEXTLINE(bugprone-signal-handler)
    setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, TERMINATE_MS * 1000 } }, NULL);
}

static void on_alarm(int number)
{
    struct sigaction now;
    (void)number;
    if (sigaction(SIGTERM, NULL, &now) < 0 || now.sa_handler != on_terminate)
        return;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}

// Rank 0 ends on SIGINT and, a moment later, on SIGTERM; the others end with rank 0 and ignore what a launcher or a
// terminal sends to all of them.
static void set_signals(bool first)
{
    for (int i = 0; i < CARRIED; i++) {
        signal(carried[i].carrier, first ? on_carrier : SIG_IGN);
        if (!first)
            signal(carried[i].signal, SIG_IGN);
    }
    if (first) {
        signal(SIGALRM, on_alarm);
        signal(SIGTERM, on_terminate);
    }
}

static struct nibble_ranks *open_ranks(struct error *err)
{
    struct nibble_text line = { 0 };
    struct strbuf flags = { 0 };
    struct nibble_ranks *ranks = NULL;
    if (read_line(&line, err)) {
        for (size_t i = 0; i < line.len; i++)
            strbuf_add_byte(&flags, line.data[i] ? line.data[i] : ' ');
        ranks = nibble_ranks_open(strbuf_text(&flags), err);
    }
    free(line.data);
    strbuf_free(&flags);
    return ranks;
}

int ranks_begin(struct nibble_ranks **ranks)
{
    struct error err;
    *ranks = NULL;
    if (nibble_ranks_launched() == 1)
        return -1;
    set_signals(nibble_ranks_launched_rank() == 0);
    *ranks = open_ranks(&err);
    if (!*ranks && nibble_ranks_launched_here() > 0) // the first rank of this host has printed the error
        return err.usage ? EXIT_USAGE : EXIT_FAILED;
    if (!*ranks)
        return cli_fail(&err, false);
    if (nibble_ranks_rank(*ranks) == 0)
        return -1;
    bool ok = nibble_ranks_work(*ranks, &err);
    if (!ok && nibble_ranks_reports(*ranks))
        cli_fail(&err, false);
    nibble_ranks_close(*ranks);
    *ranks = NULL;
    return ok ? EXIT_DONE : EXIT_FAILED;
}

// ---- the one that starts them -------------------------------------------------------------------------------------

// Settings of Open MPI and PRRTE by environment, since the command line holds only what every MPI has (-n). More ranks
// than cores are allowed, threads are not bound to cores, and root may run it. Ranks report their errors themselves.
static const struct {
    const char *name, *value;
} settings[] = {
    { "OMPI_MCA_rmaps_base_oversubscribe", "1" },
    { "OMPI_MCA_hwloc_base_binding_policy", "none" },
    { "OMPI_MCA_orte_execute_quiet", "1" },
    { "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" },
    { "PRTE_MCA_hwloc_default_binding_policy", "none" },
    { "OMPI_ALLOW_RUN_AS_ROOT", "1" },
    { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
};

// Runs mpirun in a session of its own, where a terminal's signals do not reach it; it ends when this process does.
static _Noreturn void run_mpirun(char **argv, pid_t parent, int input, const sigset_t *signals)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || (input >= 0 && dup2(input, STDIN_FILENO) < 0))
        _exit(EXIT_FAILED);
    sigprocmask(SIG_SETMASK, signals, NULL);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i].name, settings[i].value, false);
    execvp(argv[0], argv);
    _exit(STATUS_NOT_FOUND);
}

// Passes terminal input to rank 0, unless this process is in the background and the terminal belongs to another
// program. False: the input has ended.
static bool pass_on(int input)
{
    char typed[4096];
    if (tcgetpgrp(STDIN_FILENO) != getpgrp())
        return nanosleep(&(struct timespec){ 0, BACKGROUND_MS * 1000000L }, NULL), true;
    ssize_t len = read(STDIN_FILENO, typed, sizeof typed);
    return len > 0 && write(input, typed, (size_t)len) == len;
}

// Forwards signals and terminal input to mpirun. Returns its exit status; *stopped: the last signal.
static int wait_for(pid_t child, int signals, int input, int *stopped)
{
    struct pollfd ready[] = { { .fd = signals, .events = POLLIN },
                              { .fd = input >= 0 ? STDIN_FILENO : -1, .events = POLLIN } };
    struct signalfd_siginfo came;
    for (int status;;) {
        poll(ready, 2, -1);
        if (ready[1].revents && !pass_on(input)) {
            ready[1].fd = -1;
            close(input);
        }
        if (!ready[0].revents || read(signals, &came, sizeof came) != sizeof came)
            continue;
        if (came.ssi_signo == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_SIGNAL + WTERMSIG(status);
        for (int i = 0; i < CARRIED; i++)
            if (came.ssi_signo == (uint32_t)carried[i].signal) {
                *stopped = carried[i].signal;
                kill(child, carried[i].carrier);
            }
    }
}

// Starts mpirun. Returns its exit status; -1: the system does not let it start.
static int start(char **argv, int *stopped)
{
    sigset_t awaited, before;
    int typed[2] = { -1, -1 };
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (int i = 0; i < CARRIED; i++)
        sigaddset(&awaited, carried[i].signal);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    int signals = signalfd(-1, &awaited, SFD_CLOEXEC);
    if (signals < 0 || (isatty(STDIN_FILENO) && pipe2(typed, O_CLOEXEC) < 0))
        return -1;
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        run_mpirun(argv, parent, typed[0], &before);
    if (typed[0] >= 0)
        close(typed[0]);
    return child < 0 ? -1 : wait_for(child, signals, typed[1], stopped);
}

static int run_launcher(char **argv, struct error *err)
{
    int stopped = 0, status = start(argv, &stopped);
    if (status < 0)
        return fail(err, "the system starts no mpirun (%s)", strerror(errno)), cli_fail(err, false);
    if (status == STATUS_NOT_FOUND)
        return fail(err, "mpirun is there, but the system does not run it"), cli_fail(err, false);
    if (status == STATUS_SIGNAL + stopped || status == EXIT_DONE || status == EXIT_USAGE || status == EXIT_READER_LEFT)
        return status;
    if (status > STATUS_SIGNAL)
        cli_print("nibble: mpirun, or one of its %s processes, was killed by signal %d\n", argv[COUNT_WORD],
                  status - STATUS_SIGNAL);
    return EXIT_FAILED;
}

// Runs the same command line under mpirun.
static int launch(int count, struct error *err)
{
    struct nibble_text line = { 0 };
    char program[4096], number[16];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len < 0)
        return fail(err, "/proc/self/exe: %s", strerror(errno)), cli_fail(err, false);
    if (!nibble_ranks_can_launch(err) || !read_line(&line, err))
        return cli_fail(err, false);
    program[len] = '\0';
    snprintf(number, sizeof number, "%d", count);
    char *const first[] = { "mpirun", "-n", number, program };
    enum { FIRST = sizeof first / sizeof *first };
    size_t words = FIRST;
    char **argv = memory_new(FIRST + line.len + 1, sizeof *argv);
    memcpy(argv, first, sizeof first);
    for (size_t at = 0; at < line.len; at += strlen(line.data + at) + 1)
        argv[words++] = line.data + at;
    int status = run_launcher(argv, err);
    free(argv);
    free(line.data);
    return status;
}

int ranks_settle(const struct nibble_options *options, bool json)
{
    const struct nibble_ranks *ranks = options->ranks;
    int wanted = options->tensor_parallel;
    struct error err;
    if (!ranks)
        return wanted > 1 ? launch(wanted, &err) : -1;
    if (!wanted || wanted == nibble_ranks_size(ranks))
        return -1;
    fail_usage(&err,
               "--tensor-parallel-size %d was asked for, but %d processes were started; "
               "make both the same, or leave the option out",
               wanted, nibble_ranks_size(ranks));
    return cli_fail(&err, json);
}
