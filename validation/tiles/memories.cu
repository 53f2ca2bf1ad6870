// Kernels of memories.py: a thread or a core measures its own cycles.
typedef unsigned long long u64;
__device__ inline u64 now() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }

extern "C" __global__ void chase(const unsigned* next, int steps, u64* out) {
    unsigned at = 0;
    for (int i = 0; i < steps / 4; i++) at = __ldcg(next + at);
    u64 start = clock64();
    for (int i = 0; i < steps; i++) at = __ldcg(next + at);
    out[0] = clock64() - start; out[1] = at;
}

extern "C" __global__ void chase_shared(int steps, u64* out) {
    __shared__ unsigned next[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) next[i] = (i * 37 + 11) % 4096;
    __syncthreads();
    unsigned at = 0;
    u64 start = clock64();
    for (int i = 0; i < steps; i++) at = next[at];
    out[0] = clock64() - start; out[1] = at;
}

// every block reads the whole buffer, each from a place of its own
extern "C" __global__ void read_l2(const float4* buffer, int words, int rounds, u64* out, float* sink) {
    float4 sum = {0, 0, 0, 0};
    int shift = (int)((u64)words * blockIdx.x / gridDim.x);
    __syncthreads();
    u64 start = clock64(), begun = now();
    for (int r = 0; r < rounds; r++)
        for (int i = threadIdx.x; i < words; i += 4 * blockDim.x) {
            float4 v[4];
            #pragma unroll
            for (int j = 0; j < 4; j++) { int at = i + j * blockDim.x + shift; v[j] = __ldcg(buffer + (at < words ? at : at - words)); }
            #pragma unroll
            for (int j = 0; j < 4; j++) { sum.x += v[j].x; sum.y += v[j].y; sum.z += v[j].z; sum.w += v[j].w; }
        }
    __syncthreads();
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = clock64() - start; out[2 * blockIdx.x + 1] = now() - begun; }
    if (sum.x == 1.2345f) sink[0] = sum.y + sum.z + sum.w;
}

extern "C" __global__ void write_l2(float4* buffer, int words, int rounds, u64* out) {
    int each = words / gridDim.x;
    float4* mine = buffer + (size_t)each * blockIdx.x;
    u64 start = clock64();
    for (int r = 0; r < rounds; r++)
        for (int i = threadIdx.x; i < each; i += blockDim.x) __stcg(mine + i, make_float4(r, i, r, i));
    __syncthreads();
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = clock64() - start; out[2 * blockIdx.x + 1] = 0; }
}

extern "C" __global__ void read_dram(const float4* buffer, size_t words, float* sink) {
    float4 sum = {0, 0, 0, 0};
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        float4 v = __ldcs(buffer + i); sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
    }
    if (sum.x == 1.2345f) sink[0] = sum.y + sum.z + sum.w;
}

extern "C" __global__ void read_shared(int rounds, u64* out, float* sink) {
    __shared__ float4 held[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) held[i] = make_float4(i, 1, 2, 3);
    __syncthreads();
    float4 sum = {0, 0, 0, 0};
    u64 start = clock64();
    for (int r = 0; r < rounds; r++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            const float4* at = held + ((threadIdx.x + 32 * j + r) & 2047);
            float x, y, z, w;
            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                         : "r"((unsigned)__cvta_generic_to_shared(at)));
            sum.x += x; sum.y += y; sum.z += z; sum.w += w;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) out[2 * blockIdx.x] = clock64() - start;
    if (sum.x == 1.2345f) sink[0] = sum.y + sum.z + sum.w;
}

#define RATE(name, body) \
extern "C" __global__ void name(int rounds, u64* out, float* sink) { \
    float v[8]; \
    for (int j = 0; j < 8; j++) v[j] = threadIdx.x * 1e-3f + j; \
    __syncthreads(); \
    u64 start = clock64(), begun = now(); \
    for (int r = 0; r < rounds; r++) { _Pragma("unroll") for (int j = 0; j < 8; j++) { body; } } \
    __syncthreads(); \
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = clock64() - start; out[2 * blockIdx.x + 1] = now() - begun; } \
    float s = 0; for (int j = 0; j < 8; j++) s += v[j]; if (s == 1.2345f) sink[0] = s; \
}
RATE(rate_exp, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v[j])))
RATE(rate_fma, asm volatile("fma.rn.f32 %0, %0, 0f3F000000, 0f3F800000;" : "+f"(v[j])))
RATE(rate_add, asm volatile("add.rn.f32 %0, %0, 0f3F800000;" : "+f"(v[j])))
RATE(rate_max, asm volatile("max.f32 %0, %0, %1;" : "+f"(v[j]) : "f"(v[(j + 1) & 7])))
RATE(rate_reciprocal, asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(v[j])))
RATE(rate_convert, asm volatile("{.reg .b16 h; cvt.rn.bf16.f32 h, %0; cvt.f32.bf16 %0, h;}" : "+f"(v[j])))
RATE(rate_shuffle, v[j] = __shfl_xor_sync(0xffffffffu, v[j], 1))

// one thread of each of two cores: a word goes back and forth
extern "C" __global__ void exchange(volatile int* word, int rounds, u64* out) {
    if (threadIdx.x) return;
    u64 start = clock64();
    for (int r = 0; r < rounds; r++) {
        if (blockIdx.x == 0) { atomicExch((int*)word, 2 * r + 1); while (*word != 2 * r + 2); }
        else if (blockIdx.x == gridDim.x - 1) { while (*word != 2 * r + 1); atomicExch((int*)word, 2 * r + 2); }
    }
    if (blockIdx.x == 0) out[0] = clock64() - start;
}

// all members of a group of neighbouring blocks wait for each other
__device__ inline void meet(unsigned* count, unsigned target) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(count) : "memory");
        unsigned seen;
        do { asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory"); } while (seen < target);
    }
    __syncthreads();
}

extern "C" __global__ void barriers(unsigned* counts, int members, int rounds, u64* out) {
    unsigned* count = counts + 32 * (blockIdx.x / members);
    meet(count, members);
    u64 start = now();
    for (int r = 0; r < rounds; r++) meet(count, members * (r + 2));
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = now() - start; out[2 * blockIdx.x + 1] = 0; }
}

// sums of `words` among the members of a group: of all words in each member, or of a share of them
extern "C" __global__ void sums(float* parts, unsigned* counts, int members, int words, int shared, int rounds, u64* out, float* sink) {
    int group = blockIdx.x / members, me = blockIdx.x % members, each = (words + members - 1) / members;
    unsigned* count = counts + 32 * group;
    float seen = 0;
    meet(count, members);
    u64 start = now();
    for (int r = 0; r < rounds; r++) {
        float* base = parts + ((size_t)(r & 1) * gridDim.x + group * members) * words;
        for (int i = threadIdx.x; i < words; i += blockDim.x) __stcg(base + (size_t)me * words + i, seen + i);
        meet(count, members * (r + 2));
        int first = shared ? me * each : 0, last = shared ? min(words, first + each) : words;
        for (int i = first + threadIdx.x; i < last; i += blockDim.x) {
            float sum = 0;
            #pragma unroll 12
            for (int p = 0; p < members; p++) sum += __ldcg(base + (size_t)p * words + i);
            seen += sum;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = now() - start; out[2 * blockIdx.x + 1] = 0; }
    if (seen == 1.2345f) sink[0] = seen;
}
