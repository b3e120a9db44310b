/*
 * MIG: the mode of a GPU, its devices by slot, and its GPU instances by id.
 *
 * Included once, by libnvidia-ml.c, below its macros.
 */
DEVICE_2(nvmlDeviceGetMigMode)
DEVICE_1(nvmlDeviceGetGpuInstanceId)
DEVICE_1(nvmlDeviceGetComputeInstanceId)

/* "Returns zero if MIG is not supported or enabled" (nvml.h): files list it where it is not 0. */
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *to) {
    Answer answer = ask("nvmlDeviceGetMaxMigDeviceCount", device, -1);
    if (answer.code == NOT_SUPPORTED) *to = 0;
    return answer.code == NOT_SUPPORTED ? SUCCESS : give_1(answer, to);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned slot, Device **to) {
    Answer answer = ask("nvmlDeviceGetMigDeviceHandleByIndex", device, (int)slot);
    if (answer.code == SUCCESS && slot >= MAX_MIG) return INVALID_ARGUMENT;
    if (answer.code == SUCCESS) *to = &devices[device->gpu][slot + 1];
    return answer.code;
}

int nvmlDeviceGetGpuInstanceById(Device *device, unsigned id, GpuInstance **to) {
    Answer answer = ask("nvmlDeviceGetGpuInstanceById", device, (int)id);
    if (answer.code == SUCCESS && id >= MAX_MIG) return INVALID_ARGUMENT;
    if (answer.code != SUCCESS) return answer.code;
    *to = &gpu_instances[device->gpu][id];
    **to = (GpuInstance){device->gpu, id};
    return SUCCESS;
}

int nvmlGpuInstanceGetInfo(GpuInstance *instance, GpuInstanceInfo *to) {
    if (!instance) return INVALID_ARGUMENT;
    Answer answer =
        ask_at("nvmlGpuInstanceGetInfo", instance->gpu, " %d %u", instance->gpu, instance->id);
    if (answer.code != SUCCESS) return answer.code;
    to->device = &devices[instance->gpu][0], to->id = instance->id;
    to->profile = number(&answer, 0);
    to->start = number(&answer, 1), to->size = number(&answer, 2);
    return SUCCESS;
}

#ifndef WITHOUT_NEWER
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *to) {
    Answer answer = ask("nvmlDeviceGetAttributes_v2", device, -1);
    if (answer.code != SUCCESS) return answer.code;
    for (int i = 0; i < 8; i++) to->counts[i] = number(&answer, i);
    to->memory_mib = number(&answer, 8);
    return SUCCESS;
}
#endif
