// What this host can do at most: copy bandwidth at a footprint, and FP32 fused multiply-adds.
//
// Each function runs on every thread at once and returns the seconds of its best repetition.
// Vectors are as wide as the target's registers. Nothing here knows a problem.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int64_t WIDTH = 64;
#elif defined(__AVX__)
constexpr int64_t WIDTH = 32;
#else
constexpr int64_t WIDTH = 16;
#endif

constexpr int LANES = WIDTH / sizeof(float);
constexpr int CHAINS = 12;  // latency 4 on two ports needs 8; 12 and two operands fit 16 registers
constexpr int UNROLL = 4;

typedef float Vector __attribute__((vector_size(WIDTH), aligned(WIDTH)));

static inline void compiler_barrier() { asm volatile("" ::: "memory"); }

static inline void store(Vector *to, Vector value) { *to = value; }

static inline void store_past_cache(Vector *to, Vector value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(reinterpret_cast<float *>(to), (__m512)value);
#elif defined(__AVX__)
    _mm256_stream_ps(reinterpret_cast<float *>(to), (__m256)value);
#else
    *to = value;
#endif
}

template <void Store(Vector *, Vector)>
static void copy(Vector *to, const Vector *from, int64_t count) {
    for (int64_t i = 0; i + UNROLL <= count; i += UNROLL) {
        Vector values[UNROLL];
        for (int u = 0; u < UNROLL; ++u) values[u] = from[i + u];
        for (int u = 0; u < UNROLL; ++u) Store(to + i + u, values[u]);
        compiler_barrier();  // keeps the loop from becoming a call of memcpy
    }
}

// Every thread copies its own `bytes` to another `bytes`, slice by slice, `passes` times a slice.
// Returns the seconds of the best slice: a large footprint stays cold although each slice is short.
extern "C" double copy_seconds(int64_t bytes, int64_t slices, int64_t passes, int repetitions,
                               int past_cache) {
    double best = 1e30;
    const int64_t count = bytes / slices / WIDTH;
#pragma omp parallel
    {
        auto *from = static_cast<Vector *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
        auto *to = static_cast<Vector *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
        std::memset(from, 1, bytes);  // first touch on the thread that uses it
        std::memset(to, 2, bytes);
        for (int64_t turn = 0; turn < repetitions * slices; ++turn) {
            const int64_t first = turn % slices * count;
#pragma omp barrier
            const double start = omp_get_wtime();
            for (int64_t pass = 0; pass < passes; ++pass) {
                if (past_cache)
                    copy<store_past_cache>(to + first, from + first, count);
                else
                    copy<store>(to + first, from + first, count);
            }
#pragma omp barrier
            const double seconds = omp_get_wtime() - start;
#pragma omp critical
            best = std::min(best, seconds);
        }
        std::free(from);
        std::free(to);
    }
    return best;
}

// CHAINS independent chains of fused multiply-adds per thread, in registers only.
extern "C" double fma_seconds(int64_t iterations, int repetitions) {
    double best = 1e30;
#pragma omp parallel
    {
        Vector sums[CHAINS];
        const Vector factor = Vector{} + 0.999999f, term = Vector{} + 1e-6f;
        for (int chain = 0; chain < CHAINS; ++chain) sums[chain] = Vector{} + float(chain);
        for (int repetition = 0; repetition < repetitions; ++repetition) {
#pragma omp barrier
            const double start = omp_get_wtime();
            for (int64_t i = 0; i < iterations; ++i)
                for (int chain = 0; chain < CHAINS; ++chain)
                    sums[chain] = sums[chain] * factor + term;
#pragma omp barrier
            const double seconds = omp_get_wtime() - start;
#pragma omp critical
            best = std::min(best, seconds);
        }
        volatile float sink = 0;
        for (int chain = 0; chain < CHAINS; ++chain) sink = sink + sums[chain][0];
    }
    return best;
}

extern "C" int threads() { return omp_get_max_threads(); }

// Floating-point operations of one iteration of fma_seconds on one thread.
extern "C" int64_t fma_flops() { return int64_t(CHAINS) * LANES * 2; }
