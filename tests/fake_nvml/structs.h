/*
 * The structs of nvml.h that the library fills, as pynvml declares them, and how it fills those
 * that more than one function hands out.
 *
 * Included once, by libnvidia-ml.c.
 */
#include "machine.h"

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct { unsigned long long total, free, used; } Memory;

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    uint32_t type, code;
    union { unsigned u; unsigned long long ull; } value;
} FieldValue;

typedef struct { uint8_t cluster[16]; uint32_t status, clique, state; } FabricInfo;
typedef struct {
    uint32_t version;
    FabricInfo info;
    uint32_t health_mask;
    uint8_t health_summary; /* since version 3 */
} FabricInfoV;

typedef struct {
    unsigned counts[8]; /* multiprocessors … compute slices */
    unsigned long long memory_mib;
} Attributes;

typedef struct {
    Device *device;
    unsigned id, profile, start, size;
} GpuInstanceInfo;

typedef struct {
    unsigned version;
    unsigned long long counts[11]; /* aggregate, volatile, by bucket: the order of nvml.h */
    unsigned is_over_threshold;
} SramStatus;

typedef struct { unsigned environment, feature, dev_tools; } ConfComputeState;

typedef struct { int gpu; unsigned id; } GpuInstance;

static Device devices[MAX_GPUS][MAX_MIG + 1];
static GpuInstance gpu_instances[MAX_GPUS][MAX_MIG];

static int give_pci(Answer answer, PciInfo *info) {
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (answer.code != SUCCESS) return answer.code;
    memset(info, answer.garbage ? 0xa5 : 0, sizeof *info);
    if (answer.garbage) return SUCCESS;
    sscanf(answer.text, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
    info->domain = domain, info->bus = bus, info->device = slot;
    info->pci_device_id = number(&answer, 1);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.%X", domain, bus, slot, function);
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04X:%02X:%02X.%X",
             domain & 0xffff, bus & 0xff, slot & 0xff, function & 0xf);
    return SUCCESS;
}

/* The file has the kernel's kind of list, `0-55,112-167`; NVML hands out words of a mask. */
static int give_mask(Answer answer, unsigned words, unsigned long *mask) {
    const unsigned width = 8 * sizeof *mask;
    if (answer.code != SUCCESS) return answer.code;
    memset(mask, answer.garbage ? 0xa5 : 0, words * sizeof *mask);
    for (char *run = strtok(answer.text, ","); run; run = strtok(NULL, ",")) {
        char *rest;
        unsigned long first = strtoul(run, &rest, 10), last = first;
        if (*rest == '-') last = strtoul(rest + 1, NULL, 10);
        for (unsigned long bit = first; bit <= last && bit / width < words; bit++)
            mask[bit / width] |= 1ul << bit % width;
    }
    return SUCCESS;
}

static int give_fabric(const Answer *answer, FabricInfo *to) {
    const char *digits = part(answer, 2);
    unsigned byte;
    if (answer->code != SUCCESS) return answer->code;
    memset(to, answer->garbage ? 0xa5 : 0, sizeof *to);
    if (answer->garbage) return SUCCESS;
    for (int i = 0; i < 16 && sscanf(digits, "%2x", &byte) == 1; i++) {
        to->cluster[i] = (uint8_t)byte;
        digits += 2;
        if (*digits == '-') digits++;
    }
    to->state = number(answer, 0), to->status = number(answer, 1), to->clique = number(answer, 3);
    return SUCCESS;
}
