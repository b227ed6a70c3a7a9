/* What both simulated libraries read: the scenario, one fact a line, fields apart by '|'.
 *
 *   driver|580.95.05        version of the driver
 *   cuda|13000              CUDA level, as cuDriverGetVersion gives it
 *   nvml|0                  what nvmlInit returns
 *   init|0                  what cuInit returns
 *   cuda_does|hang          cuInit never returns; "crash": it takes its process along
 *   gpu|name|cc|MiB|bus|uuid|speed|sm MHz|memory MHz|limit mW|default mW|in NVML|in CUDA|MIG|compute mode
 *   mig|number of its gpu line|name|uuid|MiB|gpu instance|compute instance
 *
 * The file is named by the variable SIMULATED_DRIVER and read again at every start. Without it there is no driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16
#define TEXT 96

struct instance {
    int gpu, gpu_instance, compute_instance;
    char name[TEXT], uuid[TEXT];
    unsigned long long mebibytes;
};

struct gpu {
    char name[TEXT], bus[TEXT], uuid[TEXT];
    int major, minor, speed, in_nvml, in_cuda, mig, compute_mode;
    unsigned int sm_clock, memory_clock, limit, default_limit;
    unsigned long long mebibytes;
};

struct scenario {
    char driver[TEXT], cuda_does[TEXT];
    int there, cuda, nvml, init, gpus, instances;
    struct gpu gpu[MOST];
    struct instance instance[MOST];
};

static char *field(char **rest) {
    char *found = strsep(rest, "|\n");
    return found ? found : "";
}

static void copy(char *into, const char *text) { snprintf(into, TEXT, "%s", text); }

static void read_scenario(struct scenario *s) {
    const char *path = getenv("SIMULATED_DRIVER");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    memset(s, 0, sizeof *s);
    s->there = file != NULL;
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line, *kind = field(&rest);
        if (!strcmp(kind, "driver")) copy(s->driver, field(&rest));
        else if (!strcmp(kind, "cuda")) s->cuda = atoi(field(&rest));
        else if (!strcmp(kind, "nvml")) s->nvml = atoi(field(&rest));
        else if (!strcmp(kind, "init")) s->init = atoi(field(&rest));
        else if (!strcmp(kind, "cuda_does")) copy(s->cuda_does, field(&rest));
        else if (!strcmp(kind, "gpu") && s->gpus < MOST) {
            struct gpu *gpu = &s->gpu[s->gpus++];
            copy(gpu->name, field(&rest));
            sscanf(field(&rest), "%d.%d", &gpu->major, &gpu->minor);
            gpu->mebibytes = strtoull(field(&rest), NULL, 10);
            copy(gpu->bus, field(&rest));
            copy(gpu->uuid, field(&rest));
            gpu->speed = atoi(field(&rest));
            gpu->sm_clock = atoi(field(&rest));
            gpu->memory_clock = atoi(field(&rest));
            gpu->limit = atoi(field(&rest));
            gpu->default_limit = atoi(field(&rest));
            gpu->in_nvml = atoi(field(&rest));
            gpu->in_cuda = atoi(field(&rest));
            gpu->mig = atoi(field(&rest));
            gpu->compute_mode = atoi(field(&rest));
        } else if (!strcmp(kind, "mig") && s->instances < MOST) {
            struct instance *item = &s->instance[s->instances++];
            item->gpu = atoi(field(&rest));
            copy(item->name, field(&rest));
            copy(item->uuid, field(&rest));
            item->mebibytes = strtoull(field(&rest), NULL, 10);
            item->gpu_instance = atoi(field(&rest));
            item->compute_instance = atoi(field(&rest));
        }
    }
    if (file) fclose(file);
}
