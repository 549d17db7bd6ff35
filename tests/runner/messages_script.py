"""A script for the server of the tests: an agent that optimises softmax in C++ on the host.

What it says next follows from the request alone, as the agent's own turns follow from the log: so a
turn that is asked for again, by a driver that took over, is given again.
"""

from __future__ import annotations

from typing import Any

from tests.runner.messages_server import Block, Reply, Response, Script, Text, Thinking, ToolUse

PLAIN = r"""// Softmax over rows in three passes: the largest value, the exponentials, the quotient.
#include <cmath>
#include <cstdint>

extern "C" void softmax_fp32(const float *x, float *y, int64_t M, int64_t N) {
    for (int64_t i = 0; i < M; ++i) {
        const float *from = x + i * N;
        float *to = y + i * N;
        float largest = from[0];
        for (int64_t j = 1; j < N; ++j) largest = from[j] > largest ? from[j] : largest;
        float sum = 0.0f;
        for (int64_t j = 0; j < N; ++j) sum += to[j] = std::exp(from[j] - largest);
        for (int64_t j = 0; j < N; ++j) to[j] /= sum;
    }
}
"""

VECTORS = r"""// Softmax over rows, as before, on eight lanes and with an exponential of our own.
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace {

constexpr int64_t LANES = 8;
using Floats [[gnu::vector_size(32)]] = float;
using Ints [[gnu::vector_size(32)]] = int32_t;
constexpr float LEAST = -std::numeric_limits<float>::infinity();

Floats all(float value) { return Floats{} + value; }

// A short end is filled with -inf, which is no maximum and whose exponential is 0.
Floats take(const float *from, int64_t count) {
    Floats value = all(LEAST);
    std::memcpy(&value, from, count * sizeof(float));
    return value;
}

void put(float *to, Floats value, int64_t count) {
    std::memcpy(to, &value, count * sizeof(float));
}

// Step over a row by whole vectors, whose length the compiler knows, then over its end.
template <typename Step>
void each(int64_t N, Step step) {
    int64_t j = 0;
    for (; j + LANES <= N; j += LANES) step(j, std::integral_constant<int64_t, LANES>{});
    if (j < N) step(j, N - j);
}

// e^x for x <= 0 as 2^n 2^f, |f| <= 1/2: n goes into the exponent, 2^f is a polynomial.
Floats exponential(Floats x) {
    const Floats scaled = x * 1.442695041f;
    const Floats shifted = scaled + 12582912.0f;  // 1.5 * 2^23 leaves n in the low bits
    const Floats f = scaled - (shifted - 12582912.0f);
    Floats power = f * 1.5403530e-4f + 1.3333558e-3f;
    power = power * f + 9.6181291e-3f;
    power = power * f + 5.5504109e-2f;
    power = power * f + 2.4022651e-1f;
    power = power * f + 6.9314718e-1f;
    power = power * f + 1.0f;
    const Floats value = power * (Floats)(((Ints)shifted << 23) + (127 << 23));
    return x < all(-87.0f) ? Floats{} : value;
}

void softmax_row(const float *x, float *y, int64_t N) {
    Floats most = all(LEAST);
    each(N, [&](int64_t j, auto count) {
        const Floats value = take(x + j, count);
        most = value > most ? value : most;
    });
    float largest = most[0];
    for (int k = 1; k < LANES; ++k) largest = most[k] > largest ? most[k] : largest;
    Floats sums = all(0.0f);
    each(N, [&](int64_t j, auto count) {
        const Floats value = exponential(take(x + j, count) - largest);
        put(y + j, value, count);
        sums += value;
    });
    float sum = 0.0f;
    for (int k = 0; k < LANES; ++k) sum += sums[k];
    const float factor = 1.0f / sum;
    each(N, [&](int64_t j, auto count) { put(y + j, take(y + j, count) * factor, count); });
}

}  // namespace

extern "C" void softmax_fp32(const float *x, float *y, int64_t M, int64_t N) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) softmax_row(x + i * N, y + i * N, N);
}
"""

END = "    if (j < N) step(j, N - j);\n"  # what the wrong candidate leaves out


def _streaming() -> str:
    """The vectors with a scratch row for the exponentials, and y stored past the caches."""
    source = VECTORS
    for old, new in (
        ("#include <type_traits>\n", STREAMING_INCLUDES),
        ("// Step over a row", f"{STREAMING_STORE}\n// Step over a row"),
        ("float *y, int64_t N) {\n", "float *y, int64_t N, float *row) {\n"),
        ("put(y + j, value, count);", "put(row + j, value, count);"),
        ("put(y + j, take(y + j, count)", "stream(y + j, take(row + j, count)"),
        ("#pragma omp parallel for schedule(static)\n", STREAMING_REGION),
        ("    for (int64_t i", "#pragma omp for schedule(static)\n        for (int64_t i"),
        ("y + i * N, N);\n}\n", f"y + i * N, N, row.data());\n{STREAMING_END}"),
    ):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


STREAMING_INCLUDES = """#include <type_traits>
#include <vector>
#if defined(__AVX__)
#include <immintrin.h>
#endif
"""
STREAMING_STORE = """// Past the caches where the place allows it, so that y is never read.
void stream(float *to, Floats value, int64_t count) {
#if defined(__AVX__)
    if (count == LANES && reinterpret_cast<uintptr_t>(to) % sizeof(Floats) == 0) {
        _mm256_stream_ps(to, (__m256)value);
        return;
    }
#endif
    put(to, value, count);
}
"""
STREAMING_REGION = """#pragma omp parallel
    {
        std::vector<float> row(N);
"""
STREAMING_END = """#if defined(__AVX__)
        _mm_sfence();
#endif
    }
}
"""
STREAMING = _streaming()

NOTE = """Host, fp32 softmax: the library exponential is most of the cost of the plain passes. A
polynomial in vector registers (2^n 2^f) removes it; compare c2 and c4 for what a scratch row and
stores past the caches do. Leaving out the end of a row that is no multiple of eight is wrong, as
the odd cases show. Holds for rows that fit the cache."""

STEPS: tuple[tuple[Block, ...], ...] = (
    (
        Thinking("First what is known: the zoo's kernels and what others have published."),
        Text("I look at what is known about this problem before I write anything."),
        ToolUse("list_zoo"),
        ToolUse("search_knowledge", {"query": "softmax exponential memory"}),
    ),
    (
        Thinking(
            "The zoo kernel's header says which choices paid; I want its ideas, not its text."
        ),
        Text("The zoo has a kernel in this language. I read how it begins."),
        ToolUse("read_zoo", {"kernel": "softmax_rows", "last_line": 60}),
    ),
    (
        Thinking(
            "A correct kernel first, as plain as possible, so that there is something to beat."
        ),
        Text("I start with three plain passes: correct first, and a number to improve on."),
        ToolUse(
            "write_candidate",
            {"source": PLAIN, "idea": "Three plain passes over a row, to have a correct start."},
        ),
    ),
    (Text("Now I measure it."), ToolUse("benchmark", {"candidate": 1})),
    (
        Thinking("std::exp is a call for every element. Eight lanes and a polynomial avoid it."),
        Text(
            "The exponential is a call per element. I write it as a polynomial in vector registers."
        ),
        ToolUse(
            "write_candidate",
            {
                "source": VECTORS,
                "parent": 1,
                "idea": "A polynomial exponential on eight lanes, because the call of std::exp for"
                " each element dominates.",
            },
        ),
    ),
    (Text("Correct? And how fast?"), ToolUse("benchmark", {"candidate": 2})),
    (
        Thinking(
            "Could the end of a row be dropped? That saves a branch; the odd cases will tell."
        ),
        Text("Two ideas from here: drop the short end of a row, or keep the exponentials cached."),
        ToolUse(
            "edit_candidate",
            {
                "parent": 2,
                "old": END,
                "new": "",
                "idea": "Whole vectors only, to save the partial loads at the end of a row.",
            },
        ),
        ToolUse(
            "write_candidate",
            {
                "source": STREAMING,
                "parent": 2,
                "idea": "Exponentials wait in a scratch row and y is stored past the caches,"
                " because writing y twice costs memory traffic.",
            },
        ),
    ),
    (
        Text("The first is risky, so it is only checked; the second is measured."),
        ToolUse("check", {"candidate": 3}),
        ToolUse("benchmark", {"candidate": 4}),
    ),
    (
        Thinking("c3 is wrong for odd rows, as it had to be. What holds goes into a note."),
        Text("Dropping the end is wrong. I note what held, and compare the two that are right."),
        ToolUse("write_note", {"text": NOTE}),
        ToolUse("compare", {"first": 2, "second": 4}),
    ),
    (
        Text("What is left to try would cost more than it brings."),
        ToolUse(
            "finish",
            {
                "summary": "Plain passes, then a vector exponential, then a cached row with"
                " streaming stores. Dropping the end of a row was wrong. Prefetching is left."
            },
        ),
    ),
)

CLOSING = """Four candidates were written. The plain three passes paid for a library call for every
element; a polynomial exponential on eight lanes removed it. A scratch row with stores past the
caches is measured beside it. Leaving out the end of a row was wrong for rows that are no multiple
of eight. Next I would try prefetching and longer vectors."""


def softmax_optimisation(pace_s: float = 0.0) -> Script:
    """The script; `pace_s` passes between two events of a stream, for people to watch."""

    def next_reply(request: dict[str, Any]) -> Response:
        if not request.get("tools"):
            return Reply((Thinking("Only what is measured counts."), Text(CLOSING)), pace_s=pace_s)
        turns = sum(message["role"] == "assistant" for message in request["messages"])
        return Reply(STEPS[min(turns, len(STEPS) - 1)], pace_s=pace_s)

    return next_reply
