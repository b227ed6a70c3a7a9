/* A simulated libnvidia-ml.so.1: the functions that splatfix calls through nvidia-ml-py, answering from a scenario.
 * With -DR440 and -DR470 it is a driver of 2019 and 2021, which has none of the functions that came later. */
#if defined R470
#define PROCESSES(kind) nvmlDeviceGet##kind##RunningProcesses_v2
#else
#define PROCESSES(kind) nvmlDeviceGet##kind##RunningProcesses_v3
#endif
#include "scenario.h"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15
};

typedef void *device; /* points at a struct gpu or a struct instance of the scenario */

typedef struct { /* nvmlPciInfo_t */
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
} process_info;

static struct scenario the;
static int started;

static const char *words(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

const char *nvmlErrorString(int code) { return words(code); }

int nvmlInit_v2(void) {
    read_scenario(&the);
    int code = the.there ? the.nvml : LIBRARY_NOT_FOUND;
    started = code == SUCCESS;
    return code;
}

int nvmlInitWithFlags(unsigned int flags) { return flags ? INVALID_ARGUMENT : nvmlInit_v2(); }

int nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started = 0;
    return SUCCESS;
}

static int say(char *into, unsigned int length, const char *text) {
    if (!started) return UNINITIALIZED;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

static int number(unsigned int *into, unsigned int value) {
    if (!started) return UNINITIALIZED;
    if (!value) return NOT_SUPPORTED;
    *into = value;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *into, unsigned int length) { return say(into, length, the.driver); }

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return number((unsigned int *)version, the.cuda);
}

static struct gpu *nth(unsigned int index) {
    for (int place = 0; place < the.gpus; place++)
        if (the.gpu[place].in_nvml && index-- == 0) return &the.gpu[place];
    return NULL;
}

static struct instance *as_instance(device handle) {
    struct instance *item = handle;
    return item >= the.instance && item < the.instance + MOST ? item : NULL;
}

static struct gpu *card_of(device handle) {
    struct instance *item = as_instance(handle);
    return item ? &the.gpu[item->gpu] : handle;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!started) return UNINITIALIZED;
    for (*count = 0; nth(*count); ++*count) {}
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *handle) {
    struct gpu *gpu = started ? nth(index) : NULL;
    if (!gpu) return started ? INVALID_ARGUMENT : UNINITIALIZED;
    if (gpu->in_nvml == 2) return GPU_IS_LOST;
    *handle = gpu;
    return SUCCESS;
}

int nvmlDeviceGetName(device handle, char *name, unsigned int length) {
    struct instance *item = as_instance(handle);
    return say(name, length, item ? item->name : card_of(handle)->name);
}

int nvmlDeviceGetUUID(device handle, char *uuid, unsigned int length) {
    struct instance *item = as_instance(handle);
    return say(uuid, length, item ? item->uuid : card_of(handle)->uuid);
}

int nvmlDeviceGetCudaComputeCapability(device handle, int *major, int *minor) {
    *major = card_of(handle)->major;
    *minor = card_of(handle)->minor;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device handle, memory_info *memory) {
    struct instance *item = as_instance(handle);
    memory->total = (item ? item->mebibytes : card_of(handle)->mebibytes) << 20;
    memory->used = 1 << 20;
    memory->free = memory->total - memory->used;
    return memory->total ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(device handle, pci_info *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", card_of(handle)->bus);
    sscanf(pci->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device handle, unsigned int type, unsigned int *clock) {
    return number(clock, type == 2 ? card_of(handle)->memory_clock : card_of(handle)->sm_clock);
}

int nvmlDeviceGetEnforcedPowerLimit(device handle, unsigned int *limit) {
    return number(limit, card_of(handle)->limit);
}

int nvmlDeviceGetPowerManagementDefaultLimit(device handle, unsigned int *limit) {
    return number(limit, card_of(handle)->default_limit);
}

int nvmlDeviceGetComputeMode(device handle, int *mode) {
    *mode = card_of(handle)->compute_mode;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device handle, utilization *rates) {
    if (card_of(handle)->mig > 0) return NOT_SUPPORTED;
    *rates = (utilization){93, 41};
    return SUCCESS;
}

#ifndef R440
static int processes(unsigned int *count, process_info *into) {
    unsigned int room = *count;
    *count = 1;
    if (room < 1 || !into) return INSUFFICIENT_SIZE;
    *into = (process_info){4242, 5ull << 30, ~0u, ~0u};
    return SUCCESS;
}

int PROCESSES(Compute)(device handle, unsigned int *count, process_info *into) {
    (void)handle;
    return processes(count, into);
}

int PROCESSES(Graphics)(device handle, unsigned int *count, process_info *into) {
    (void)handle, (void)into;
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device handle, unsigned int *current, unsigned int *pending) {
    if (card_of(handle)->mig < 0) return NOT_SUPPORTED;
    *current = *pending = card_of(handle)->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device handle, unsigned int *count) {
    *count = card_of(handle)->mig > 0 ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device handle, unsigned int index, device *instance) {
    for (int place = 0; place < the.instances; place++)
        if (&the.gpu[the.instance[place].gpu] == handle && index-- == 0) {
            *instance = &the.instance[place];
            return SUCCESS;
        }
    return NOT_FOUND;
}
#endif
