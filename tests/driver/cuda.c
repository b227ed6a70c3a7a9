/* A simulated libcuda.so.1: the functions of the driver API that find GPUs, answering from a scenario.
 *
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are read at cuInit, as the CUDA C++ Programming Guide ("CUDA Environment
 * Variables") and the MIG User Guide ("CUDA Device Enumeration") have it: numbers count in CUDA's own order, what follows the
 * first entry that names nothing is dropped, UUIDs may be cut short, a card in MIG mode is used by one of its instances, and of
 * several instances only the first is seen. With -DR440 it is a driver of 2019, without the functions that came later. */
#ifdef WITH_CUDA_H
#include <cuda.h> /* the compiler then compares every declaration */
#undef cuDeviceGetUuid
#else
typedef int CUresult, CUdevice, CUdevice_attribute;
typedef struct { char bytes[16]; } CUuuid;
#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_INVALID_DEVICE 101
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR 75
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR 76
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#endif
#include "scenario.h"
#include <ctype.h>
#include <unistd.h>

struct seen {
    struct gpu *gpu;
    struct instance *instance; /* NULL for a whole card */
};

static struct scenario the;
static struct seen seen[MOST];
static int count, started;

static int faster(const void *a, const void *b) {
    const struct seen *first = a, *second = b;
    if (first->gpu->speed != second->gpu->speed) return second->gpu->speed - first->gpu->speed;
    return strcmp(first->gpu->bus, second->gpu->bus);
}

static int by_bus(const void *a, const void *b) {
    return strcmp(((const struct seen *)a)->gpu->bus, ((const struct seen *)b)->gpu->bus);
}

static struct instance *first_instance(struct gpu *gpu) {
    for (int place = 0; place < the.instances; place++)
        if (&the.gpu[the.instance[place].gpu] == gpu) return &the.instance[place];
    return NULL;
}

static int named(const char *entry, const struct seen *all, int total, struct seen *found) {
    int matches = 0;
    if (!strncmp(entry, "MIG-", 4)) {
        for (int place = 0; place < the.instances; place++) {
            struct instance *item = &the.instance[place];
            char old[3 * TEXT];
            snprintf(old, sizeof old, "MIG-%s/%d/%d", the.gpu[item->gpu].uuid, item->gpu_instance, item->compute_instance);
            if ((!strcmp(entry, item->uuid) || !strcmp(entry, old)) && the.gpu[item->gpu].in_cuda) {
                *found = (struct seen){&the.gpu[item->gpu], item};
                matches++;
            }
        }
    } else if (!strncmp(entry, "GPU-", 4)) {
        for (int place = 0; place < total; place++)
            if (!strncmp(all[place].gpu->uuid, entry, strlen(entry))) {
                *found = all[place];
                matches++;
            }
    } else if (isdigit((unsigned char)*entry) && atoi(entry) < total) {
        *found = all[atoi(entry)];
        matches++;
    }
    return matches == 1;
}

static void find(void) {
    struct seen all[MOST];
    int total = 0;
    const char *order = getenv("CUDA_DEVICE_ORDER"), *value = getenv("CUDA_VISIBLE_DEVICES");
    count = 0;
    for (int place = 0; place < the.gpus; place++) {
        struct gpu *gpu = &the.gpu[place];
        if (gpu->in_cuda && (gpu->mig < 1 || first_instance(gpu)))
            all[total++] = (struct seen){gpu, gpu->mig > 0 ? first_instance(gpu) : NULL};
    }
    qsort(all, total, sizeof *all, order && !strcmp(order, "PCI_BUS_ID") ? by_bus : faster);
    if (!value) {
        memcpy(seen, all, sizeof all);
        count = total;
    } else {
        char text[1024], *rest = text, *entry;
        snprintf(text, sizeof text, "%s", value);
        while ((entry = strsep(&rest, ",")) && count < MOST) {
            while (*entry == ' ') entry++;
            struct seen one;
            if (!named(entry, all, total, &one)) break;
            for (int place = 0; place < count; place++)
                if (seen[place].gpu == one.gpu && seen[place].instance == one.instance) {
                    count = 0; /* one that is named twice leaves none */
                    return;
                }
            seen[count++] = one;
        }
    }
    for (int place = 0; place < count; place++)
        if (seen[place].instance) {
            seen[0] = seen[place];
            count = 1;
        }
}

CUresult cuInit(unsigned int flags) {
    read_scenario(&the);
    started = 0;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!strcmp(the.cuda_does, "crash")) abort();
    while (!strcmp(the.cuda_does, "hang")) pause();
    if (!the.there) return CUDA_ERROR_NO_DEVICE;
    if (the.init) return (CUresult)the.init;
    find();
    if (!count) return CUDA_ERROR_NO_DEVICE;
    started = 1;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = the.cuda;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *number) {
    *number = count;
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult valid(CUdevice device) {
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return valid(ordinal);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    if (valid(device) == CUDA_SUCCESS)
        snprintf(name, length, "%s", seen[device].instance ? seen[device].instance->name : seen[device].gpu->name);
    return valid(device);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (valid(device) != CUDA_SUCCESS) return valid(device);
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = seen[device].gpu->major;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = seen[device].gpu->minor;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    if (valid(device) != CUDA_SUCCESS) return valid(device);
    *bytes = (size_t)(seen[device].instance ? seen[device].instance->mebibytes : seen[device].gpu->mebibytes) << 20;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus, int length, CUdevice device) {
    if (valid(device) != CUDA_SUCCESS) return valid(device);
    /* NVML writes the domain with eight digits, CUDA with four */
    snprintf(bus, length, "%s", seen[device].gpu->bus + (strlen(seen[device].gpu->bus) > 12 ? 4 : 0));
    return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *into, const char *text) {
    const char *digits = strchr(text, '-');
    for (int place = 0; place < 16; place++) {
        unsigned int byte = 0;
        while (digits && *digits == '-') digits++;
        if (digits) sscanf(digits, "%2x", &byte), digits += 2;
        into->bytes[place] = (char)byte;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *into, CUdevice device) {
    return valid(device) == CUDA_SUCCESS ? uuid(into, seen[device].gpu->uuid) : valid(device);
}

#ifndef R440
CUresult cuDeviceGetUuid_v2(CUuuid *into, CUdevice device) {
    if (valid(device) != CUDA_SUCCESS) return valid(device);
    return uuid(into, seen[device].instance ? seen[device].instance->uuid : seen[device].gpu->uuid);
}
#endif
