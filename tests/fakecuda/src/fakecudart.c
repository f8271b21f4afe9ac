/* fakecudart: the public CUDA runtime API (the part CuPy uses) on top of the fake driver in
 * fakecuda.c. */
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern CUresult fakecuda_end_capture(CUstream);
extern CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
static __thread cudaError_t last;
static __thread int dev_, bound = -1;
static cudaError_t rt(CUresult r) {
    if (r)
        last = (cudaError_t)r;
    return (cudaError_t)r;
} /* the numbers agree for every code used here */
static cudaError_t drv(void) {
    if (getenv("FAKECUDA_NODRIVER"))
        return last = cudaErrorInsufficientDriver;
    int v = 0;
    cuDriverGetVersion(&v);
    if (v / 1000 < CUDART_VERSION / 1000)
        return last = cudaErrorInsufficientDriver;
    return rt(cuInit(0));
}
static cudaError_t bind(void) {
    cudaError_t e = drv();
    if (e)
        return e;
    CUcontext c = 0;
    cuCtxGetCurrent(&c);
    if (!c || (bound != dev_)) {
        e = rt(cuDevicePrimaryCtxRetain(&c, dev_));
        if (e)
            return e;
        e = rt(cuCtxSetCurrent(c));
        if (e)
            return e;
        bound = dev_;
    }
    return cudaSuccess;
}
#define B                        \
    do {                         \
        cudaError_t e_ = bind(); \
        if (e_)                  \
            return e_;           \
    } while (0)
#define R(x)          \
    do {              \
        B;            \
        return rt(x); \
    } while (0)
#define DP(p) ((CUdeviceptr)(uintptr_t)(p))
#define ST(s) ((CUstream)(s))
#define EV(e) ((CUevent)(e))

static const struct {
    int c;
    const char *n, *s;
} ERR[] = {{0, "cudaSuccess", "no error"},
           {1, "cudaErrorInvalidValue", "invalid argument"},
           {2, "cudaErrorMemoryAllocation", "out of memory"},
           {3, "cudaErrorInitializationError", "initialization error"},
           {35, "cudaErrorInsufficientDriver",
            "CUDA driver version is insufficient for CUDA runtime version"},
           {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
           {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
           {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
           {201, "cudaErrorDeviceUninitialized", "invalid device context"},
           {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
           {500, "cudaErrorSymbolNotFound", "named symbol not found"},
           {600, "cudaErrorNotReady", "device not ready"},
           {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
           {709, "cudaErrorContextIsDestroyed", "context is destroyed"},
           {712, "cudaErrorHostMemoryAlreadyRegistered",
            "part or all of the requested memory range is already mapped"},
           {713, "cudaErrorHostMemoryNotRegistered",
            "pointer does not correspond to a registered memory region"},
           {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
           {801, "cudaErrorNotSupported", "operation not supported"},
           {900, "cudaErrorStreamCaptureUnsupported",
            "operation not permitted when stream is capturing"},
           {901, "cudaErrorStreamCaptureInvalidated",
            "operation failed due to a previous error during capture"},
           {905, "cudaErrorStreamCaptureIsolation",
            "dependency created on uncaptured work in another stream"},
           {907, "cudaErrorCapturedEvent",
            "operation not permitted on an event last recorded in a capturing stream"},
           {999, "cudaErrorUnknown", "unknown error"}};
static int ei(int c) {
    for (unsigned i = 0; i < sizeof ERR / sizeof *ERR; i++)
        if (ERR[i].c == c)
            return (int)i;
    return -1;
}
const char *cudaGetErrorName(cudaError_t e) {
    int i = ei(e);
    return i < 0 ? "cudaError(fakecuda: unnamed)" : ERR[i].n;
}
const char *cudaGetErrorString(cudaError_t e) {
    int i = ei(e);
    return i < 0 ? "unrecognized error code" : ERR[i].s;
}
cudaError_t cudaGetLastError(void) {
    cudaError_t e = last;
    last = 0;
    return e;
}
cudaError_t cudaPeekAtLastError(void) {
    return last;
}
cudaError_t cudaDriverGetVersion(int *v) {
    if (getenv("FAKECUDA_NODRIVER")) {
        *v = 0;
        return 0;
    }
    return rt(cuDriverGetVersion(v));
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = CUDART_VERSION;
    return 0;
}

cudaError_t cudaGetDeviceCount(int *n) {
    cudaError_t e = drv();
    if (e) {
        *n = 0;
        return e;
    }
    return rt(cuDeviceGetCount(n));
}
cudaError_t cudaGetDevice(int *d) {
    cudaError_t e = drv();
    if (e)
        return e;
    *d = dev_;
    return 0;
}
cudaError_t cudaSetDevice(int d) {
    int n;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e)
        return e;
    if (d < 0 || d >= n)
        return last = cudaErrorInvalidDevice;
    dev_ = d;
    return bind();
}
cudaError_t cudaDeviceSynchronize(void) {
    R(cuCtxSynchronize());
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceGetAttribute(v, (CUdevice_attribute)a, d));
}
cudaError_t cudaDeviceGetByPCIBusId(int *d, const char *s) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceGetByPCIBusId(d, s));
}
cudaError_t cudaDeviceGetPCIBusId(char *s, int n, int d) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceGetPCIBusId(s, n, d));
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
    cudaError_t e = drv();
    if (e)
        return e;
    memset(p, 0, sizeof *p);
    if ((e = rt(cuDeviceGetName(p->name, sizeof p->name, d))))
        return e;
    cuDeviceTotalMem(&p->totalGlobalMem, d);
#define A(f, a) cuDeviceGetAttribute(&p->f, (CUdevice_attribute)a, d)
    A(major, 75);
    A(minor, 76);
    A(warpSize, 10);
    A(multiProcessorCount, 16);
    A(maxThreadsPerBlock, 1);
    A(asyncEngineCount, 40);
    A(unifiedAddressing, 41);
    A(canMapHostMemory, 19);
    A(concurrentKernels, 31);
    A(pciBusID, 33);
    A(maxThreadsPerMultiProcessor, 39);
    A(streamPrioritiesSupported, 78);
    A(memoryPoolsSupported, 115);
    A(maxThreadsDim[0], 2);
    A(maxThreadsDim[1], 3);
    A(maxThreadsDim[2], 4);
    A(maxGridSize[0], 5);
    A(maxGridSize[1], 6);
    A(maxGridSize[2], 7);
    p->sharedMemPerBlock = 49152;
    p->totalConstMem = 65536;
    p->textureAlignment = 512;
    return 0;
}
cudaError_t cudaDeviceCanAccessPeer(int *v, int a, int b) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceCanAccessPeer(v, a, b));
}
cudaError_t cudaDeviceEnablePeerAccess(int d, unsigned f) {
    (void)d;
    (void)f;
    B;
    return 0;
}
cudaError_t cudaDeviceDisablePeerAccess(int d) {
    (void)d;
    B;
    return 0;
}
cudaError_t cudaDeviceGetLimit(size_t *v, enum cudaLimit l) {
    R(cuCtxGetLimit(v, (CUlimit)l));
}
cudaError_t cudaDeviceSetLimit(enum cudaLimit l, size_t v) {
    R(cuCtxSetLimit((CUlimit)l, v));
}
cudaError_t cudaProfilerStart(void) {
    B;
    return 0;
}
cudaError_t cudaProfilerStop(void) {
    B;
    return 0;
}

cudaError_t cudaMalloc(void **p, size_t n) {
    B;
    if (!n) {
        *p = 0;
        return 0;
    }
    CUdeviceptr d = 0;
    cudaError_t e = rt(cuMemAlloc(&d, n));
    if (!e)
        *p = (void *)(uintptr_t)d;
    return e;
}
cudaError_t cudaFree(void *p) {
    R(cuMemFree(DP(p)));
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned f) {
    R(cuMemHostAlloc(p, n, f));
}
cudaError_t cudaFreeHost(void *p) {
    R(cuMemFreeHost(p));
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned f) {
    R(cuMemHostRegister(p, n, f));
}
cudaError_t cudaHostUnregister(void *p) {
    R(cuMemHostUnregister(p));
}
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) {
    R(cuMemGetInfo(f, t));
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) {
    B;
    if (!n) {
        *p = 0;
        return 0;
    }
    CUdeviceptr d = 0;
    cudaError_t e = rt(cuMemAllocAsync(&d, n, ST(s)));
    if (!e)
        *p = (void *)(uintptr_t)d;
    return e;
}
cudaError_t cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t q, cudaStream_t s) {
    B;
    CUdeviceptr d = 0;
    cudaError_t e = rt(cuMemAllocFromPoolAsync(&d, n, (CUmemoryPool)q, ST(s)));
    if (!e)
        *p = (void *)(uintptr_t)d;
    return e;
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) {
    R(cuMemFreeAsync(DP(p), ST(s)));
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *q, int d) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceGetDefaultMemPool((CUmemoryPool *)q, d));
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *q, int d) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceGetMemPool((CUmemoryPool *)q, d));
}
cudaError_t cudaDeviceSetMemPool(int d, cudaMemPool_t q) {
    cudaError_t e = drv();
    if (e)
        return e;
    return rt(cuDeviceSetMemPool(d, (CUmemoryPool)q));
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *q, const struct cudaMemPoolProps *p) {
    R(cuMemPoolCreate((CUmemoryPool *)q, (const CUmemPoolProps *)p));
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t q) {
    R(cuMemPoolDestroy((CUmemoryPool)q));
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t q, size_t n) {
    R(cuMemPoolTrimTo((CUmemoryPool)q, n));
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t q, enum cudaMemPoolAttr a, void *v) {
    R(cuMemPoolGetAttribute((CUmemoryPool)q, (CUmemPool_attribute)a, v));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t q, enum cudaMemPoolAttr a, void *v) {
    R(cuMemPoolSetAttribute((CUmemoryPool)q, (CUmemPool_attribute)a, v));
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    B;
    unsigned t = 0;
    int d = -2;
    void *dp = 0, *hp = 0;
    CUpointer_attribute k[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *o[] = {&t, &d, &dp, &hp};
    cudaError_t e = rt(cuPointerGetAttributes(4, k, o, DP(p)));
    if (e)
        return e;
    memset(a, 0, sizeof *a);
    a->type = (enum cudaMemoryType)t;
    a->device = d;
    a->devicePointer = dp;
    a->hostPointer = t == 2 ? 0 : t == 1 ? hp : (void *)p;
    return 0;
}
/* the direction given must agree with the pointers, as with a device whose memory the host cannot
 * see */
static CUresult cp(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st,
                   int async) {
    switch (k) {
    case cudaMemcpyHostToDevice:
        return async ? cuMemcpyHtoDAsync(DP(d), s, n, ST(st)) : cuMemcpyHtoD(DP(d), s, n);
    case cudaMemcpyDeviceToHost:
        return async ? cuMemcpyDtoHAsync(d, DP(s), n, ST(st)) : cuMemcpyDtoH(d, DP(s), n);
    case cudaMemcpyDeviceToDevice:
        return async ? cuMemcpyDtoDAsync(DP(d), DP(s), n, ST(st)) : cuMemcpyDtoD(DP(d), DP(s), n);
    case cudaMemcpyDefault:
    case cudaMemcpyHostToHost:
        return async ? cuMemcpyAsync(DP(d), DP(s), n, ST(st)) : cuMemcpy(DP(d), DP(s), n);
    default:
        return (CUresult)21;
    }
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
    R(cp(d, s, n, k, 0, 0));
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k,
                            cudaStream_t st) {
    R(cp(d, s, n, k, st, 1));
}
cudaError_t cudaMemcpyPeer(void *d, int dd, const void *s, int sd, size_t n) {
    (void)dd;
    (void)sd;
    R(cuMemcpyPeer(DP(d), 0, DP(s), 0, n));
}
cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) {
    (void)dd;
    (void)sd;
    R(cuMemcpyPeerAsync(DP(d), 0, DP(s), 0, n, ST(st)));
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
                              enum cudaMemcpyKind k, cudaStream_t st) {
    B;
    for (size_t i = 0; i < h; i++) {
        CUresult r = cp((char *)d + i * dp, (const char *)s + i * sp, w, k, st, 1);
        if (r)
            return rt(r);
    }
    return 0;
}
cudaError_t cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
                         enum cudaMemcpyKind k) {
    B;
    for (size_t i = 0; i < h; i++) {
        CUresult r = cp((char *)d + i * dp, (const char *)s + i * sp, w, k, 0, 0);
        if (r)
            return rt(r);
    }
    return 0;
}
cudaError_t cudaMemset(void *p, int v, size_t n) {
    R(cuMemsetD8(DP(p), (unsigned char)v, n));
}
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) {
    R(cuMemsetD8Async(DP(p), (unsigned char)v, n, ST(s)));
}

cudaError_t cudaStreamCreate(cudaStream_t *s) {
    R(cuStreamCreate((CUstream *)s, 0));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) {
    R(cuStreamCreate((CUstream *)s, f));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) {
    R(cuStreamCreateWithPriority((CUstream *)s, f, p));
}
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned *f) {
    R(cuStreamGetFlags(ST(s), f));
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) {
    R(cuStreamGetPriority(ST(s), p));
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    R(cuStreamDestroy(ST(s)));
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    R(cuStreamSynchronize(ST(s)));
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    R(cuStreamQuery(ST(s)));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
    R(cuStreamWaitEvent(ST(s), EV(e), f));
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *d, unsigned fl) {
    R(cuStreamAddCallback(ST(s), (CUstreamCallback)f, d, fl));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *d) {
    R(cuLaunchHostFunc(ST(s), f, d));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *c) {
    CUstreamCaptureStatus found = 0;
    B;
    cudaError_t e = rt(cuStreamIsCapturing(ST(s), &found));
    *c = (enum cudaStreamCaptureStatus)found;
    return e;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
    R(cuStreamBeginCapture_v2(ST(s), (CUstreamCaptureMode)m));
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    static char nothing; /* what the graph is: it can be destroyed, and no more */
    B;
    cudaError_t e = rt(fakecuda_end_capture(ST(s)));
    *g = e ? 0 : (cudaGraph_t)&nothing;
    return e;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    (void)g;
    B;
    return 0;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    R(cuEventCreate((CUevent *)e, 0));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) {
    R(cuEventCreate((CUevent *)e, f));
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    R(cuEventDestroy(EV(e)));
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    R(cuEventRecord(EV(e), ST(s)));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    R(cuEventQuery(EV(e)));
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    R(cuEventSynchronize(EV(e)));
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    R(cuEventElapsedTime(ms, EV(a), EV(b)));
}

/* not provided: a clear error, and the name on stderr. (The register arguments of the caller are
 * not looked at.) */
#define NO(name)                                                                              \
    __attribute__((visibility("default"))) int fk_##name(void) __asm__(#name);                \
    int fk_##name(void) {                                                                     \
        fprintf(stderr,                                                                       \
                "[fakecuda] unsupported runtime call: " #name " -> cudaErrorNotSupported\n"); \
        last = cudaErrorNotSupported;                                                         \
        return cudaErrorNotSupported;                                                         \
    }
NO(cudaCreateSurfaceObject)
NO(cudaCreateTextureObject) NO(cudaDestroySurfaceObject) NO(cudaDestroyTextureObject)
    NO(cudaFreeArray) NO(cudaGetChannelDesc) NO(cudaGetTextureObjectResourceDesc)
        NO(cudaGetTextureObjectTextureDesc) NO(cudaGraphDebugDotPrint)
            NO(cudaGraphExecDestroy) NO(cudaGraphInstantiate) NO(cudaGraphLaunch)
                NO(cudaGraphUpload) NO(cudaIpcCloseMemHandle) NO(cudaIpcGetEventHandle)
                    NO(cudaIpcGetMemHandle) NO(cudaIpcOpenEventHandle) NO(cudaIpcOpenMemHandle)
                        NO(cudaMalloc3DArray) NO(cudaMallocArray) NO(cudaMallocManaged)
                            NO(cudaMemAdvise) NO(cudaMemPrefetchAsync) NO(cudaMemcpy2DFromArray)
                                NO(cudaMemcpy2DFromArrayAsync) NO(cudaMemcpy2DToArray)
                                    NO(cudaMemcpy2DToArrayAsync) NO(cudaMemcpy3D)
                                        NO(cudaMemcpy3DAsync)
