/*
 * Calls that NVIDIA's own programs make and ours do not: how a MIG device gets its profile.
 *
 * go-nvlib v0.9.1 (pkg/nvlib/device) finds the name of a MIG device by comparing the numbers of
 * its instances' profiles with those of every profile that the GPU offers. No machine's file
 * lists these: the GPU instance profiles are the table below, and a compute instance is found
 * among the MIG devices of its GPU.
 *
 * Included once, by libnvidia-ml.c, below mig.h.
 */

/* What `nvidia-smi mig -lgip` prints of A100 and H100 (NVIDIA MIG User Guide): NVML's index of
 * the profile, its number, its compute slices of 7, its memory slices of 8. */
static const struct { unsigned index, number, compute, memory; } gpu_profiles[] = {
    {0, 19, 1, 1}, {1, 14, 2, 2}, {2, 9, 3, 4}, {3, 5, 4, 4},
    {4, 0, 7, 8},  {7, 20, 1, 1}, /* with all media engines: +me */
    {9, 15, 1, 2},
};

/* NVML_COMPUTE_INSTANCE_PROFILE_* by index: compute slices. The number is the index here. */
static const unsigned compute_profiles[] = {1, 2, 3, 4, 7, 8, 6, 1};

enum { MEMORY_SLICES = 8, MIB = 1 << 20, COMPUTE_SLICES = 7 /* of nvmlDeviceAttributes_t */ };

typedef struct {
    unsigned id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
} GpuProfile;

typedef struct { unsigned id, slices, instances, multiprocessors, engines[5]; } ComputeProfile;

typedef struct { Device *device; } ComputeInstance; /* the MIG device that it makes */

typedef struct {
    Device *device;
    GpuInstance *gpu_instance;
    unsigned id, profile, start, size;
} ComputeInstanceInfo;

static ComputeInstance compute_instances[MAX_GPUS][MAX_MIG];

int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *to) {
    if (!device) return INVALID_ARGUMENT;
    *to = device->mig >= 0;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *device, Device **to) {
    if (!device || device->mig < 0) return INVALID_ARGUMENT;
    *to = &devices[device->gpu][0];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfo(Device *device, unsigned index, GpuProfile *to) {
    Answer mode = ask("nvmlDeviceGetMigMode", device, -1);
    Answer memory = ask("nvmlDeviceGetMemoryInfo", device, -1);
    if (mode.code != SUCCESS) return mode.code;
    if (memory.code != SUCCESS) return memory.code;
    unsigned long long mib = strtoull(part(&memory, 0), NULL, 0) / MIB;
    for (size_t i = 0; i < sizeof gpu_profiles / sizeof *gpu_profiles; i++) {
        if (gpu_profiles[i].index != index) continue;
        memset(to, 0, sizeof *to);
        to->id = gpu_profiles[i].number, to->slices = gpu_profiles[i].compute;
        to->memory_mib = mib * gpu_profiles[i].memory / MEMORY_SLICES;
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

static unsigned compute_slices(Device *mig_device) {
    Answer answer = ask("nvmlDeviceGetAttributes_v2", mig_device, -1);
    return answer.code == SUCCESS ? number(&answer, COMPUTE_SLICES) : 0;
}

static int is_in(Device *mig_device, unsigned gpu_instance, unsigned compute_instance) {
    Answer outer = ask("nvmlDeviceGetGpuInstanceId", mig_device, -1);
    Answer inner = ask("nvmlDeviceGetComputeInstanceId", mig_device, -1);
    return outer.code == SUCCESS && inner.code == SUCCESS &&
           number(&outer, 0) == gpu_instance && number(&inner, 0) == compute_instance;
}

int nvmlGpuInstanceGetComputeInstanceById(GpuInstance *instance, unsigned id,
                                          ComputeInstance **to) {
    if (!instance) return INVALID_ARGUMENT;
    for (int slot = 0; slot < MAX_MIG; slot++) {
        if (!is_in(&devices[instance->gpu][slot + 1], instance->id, id)) continue;
        *to = &compute_instances[instance->gpu][slot];
        (*to)->device = &devices[instance->gpu][slot + 1];
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlComputeInstanceGetInfo_v2(ComputeInstance *instance, ComputeInstanceInfo *to) {
    if (!instance) return INVALID_ARGUMENT;
    unsigned slices = compute_slices(instance->device);
    memset(to, 0, sizeof *to);
    to->device = &devices[instance->device->gpu][0];
    to->size = slices;
    while (to->profile < sizeof compute_profiles / sizeof *compute_profiles &&
           compute_profiles[to->profile] != slices)
        to->profile++;
    return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance *instance, unsigned index,
                                                 unsigned engines, ComputeProfile *to) {
    if (!instance || engines) return INVALID_ARGUMENT;
    if (index >= sizeof compute_profiles / sizeof *compute_profiles) return INVALID_ARGUMENT;
    memset(to, 0, sizeof *to);
    to->id = index, to->slices = compute_profiles[index];
    return SUCCESS;
}
