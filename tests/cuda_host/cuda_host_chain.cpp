// cuda_host_chain.cpp - chained launches, where a kernel may start while those before it still run: what they have written is hidden
// from a block until its threads have called depend_wait.
//
// Memory of the device is write-protected when a kernel starts, and the first write to a page keeps a copy, so that what a kernel has
// written is known in the end. A kernel that lets the next one start in front of its own depend_wait leaves it, too, what it did not
// wait for itself.
#include "cuda_host/cuda_host.h"

#include <map>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

namespace cuda_host {

enum { PAGE = 4096 };

struct span {
    unsigned char *at;
    size_t n;
};
struct mapping {
    size_t n;
    bool open; /* some pages can be written */
};
static struct chain {
    std::map<unsigned char *, mapping> maps;
    std::map<unsigned char *, std::vector<unsigned char>> pages; /* that this kernel has written, as they were */
    std::vector<span> written; /* by kernels that may still run when the next one starts */
    std::vector<unsigned char> hidden;
    bool runs;
    struct sigaction before;
} c;

bool chain_checks() {
    static const char *how = getenv("CUDA_HOST_CHAIN");
    static const bool early = how && !strcmp(how, "early");
    return early;
}

static size_t whole(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

static void on_write(int signal, siginfo_t *info, void *) {
    unsigned char *page = reinterpret_cast<unsigned char *>(reinterpret_cast<uintptr_t>(info->si_addr) & ~static_cast<uintptr_t>(PAGE - 1));
    auto at = c.maps.upper_bound(page);
    bool ours = at != c.maps.begin() && page < (--at)->first + whole(at->second.n);
    if (!ours || (c.runs && c.pages.count(page))) {
        sigaction(signal, &c.before, nullptr); /* a fault like any other: it comes again */
        return;
    }
    at->second.open = true;
    if (c.runs) c.pages[page].assign(page, page + PAGE), mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    else mprotect(at->first, whole(at->second.n), PROT_READ | PROT_WRITE);
}

void *chain_map(size_t n) {
    static bool first = true;
    struct sigaction mine = {};
    mine.sa_sigaction = on_write;
    mine.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (first) sigaction(SIGSEGV, &mine, &c.before);
    first = false;
    void *p = mmap(nullptr, whole(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    c.maps[static_cast<unsigned char *>(p)] = {n, true};
    return p;
}
void chain_unmap(void *p) {
    chain_cut();
    auto at = c.maps.find(static_cast<unsigned char *>(p));
    munmap(p, whole(at->second.n));
    c.maps.erase(at);
}

void chain_cut() { c.written.clear(); }

void chain_begin(bool chained) {
    if (!chain_checks()) return;
    if (!chained) chain_cut();
    for (auto &m : c.maps)
        if (m.second.open) mprotect(m.first, whole(m.second.n), PROT_READ), m.second.open = false;
    c.pages.clear();
    c.runs = true;
}

void chain_end(bool early) {
    if (!chain_checks()) return;
    c.runs = false;
    if (!early) chain_cut();
    for (auto &p : c.pages)
        for (size_t i = 0; i < PAGE; i += 4) {
            if (memcmp(p.first + i, p.second.data() + i, 4) == 0) continue;
            if (!c.written.empty() && c.written.back().at + c.written.back().n == p.first + i) c.written.back().n += 4;
            else c.written.push_back({p.first + i, 4});
        }
}

bool chain_hide() {
    if (!chain_checks() || c.written.empty()) return false;
    c.hidden.clear();
    for (const span &s : c.written) {
        c.hidden.insert(c.hidden.end(), s.at, s.at + s.n);
        memset(s.at, 0xff, s.n);
    }
    return true;
}

void chain_show() {
    for (const span &s : c.written)
        for (size_t i = 0; i < s.n; i++)
            if (s.at[i] != 0xff) fail("writes in front of depend_wait where a kernel before it wrote");
    size_t end = c.hidden.size();
    for (auto s = c.written.rbegin(); s != c.written.rend(); ++s) { /* backwards: several may have written the same place */
        end -= s->n;
        memcpy(s->at, c.hidden.data() + end, s->n);
    }
}

} // namespace cuda_host
