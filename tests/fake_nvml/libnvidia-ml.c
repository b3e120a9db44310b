/*
 * A libnvidia-ml.so.1 that plays a machine written down in a text file.
 *
 * NODETOPO_FAKE_NVML names a directory. `nvml.txt` in it holds one answer a line:
 *
 *     <function> <args...> = <return code> [value | value ...]        # comment
 *
 * A GPU is its index; a MIG device is `<gpu>:<slot>`; a GPU instance is its GPU and its id. What
 * is not listed answers 3, NOT_SUPPORTED. Arguments are those that tell answers apart:
 *
 *     nvmlDeviceGetUUID 0:2 = 0 MIG-…                      a MIG device
 *     nvmlDeviceGetMigDeviceHandleByIndex 0 2 = 0          GPU, slot; 6 for an empty one
 *     nvmlDeviceGetGpuInstanceById 0 5 = 0                 GPU, id; that it exists
 *     nvmlGpuInstanceGetInfo 0 5 = 0 9 | 4 | 4             … profile | start | size
 *     nvmlDeviceGetAttributes_v2 0:2 = 0 60 | 3 | …        in the order of nvmlDeviceAttributes_t
 *     nvmlDeviceGetMemoryAffinity 0 0 = 0 0,2-17           GPU, scope; NUMA nodes
 *     nvmlDeviceGetTotalEccErrors 0 1 0 = 0 7              GPU, error type, counter type
 *     nvmlDeviceGetSramEccErrorStatus 0 = 0 4 | 1 | … | 1  in the order of nvmlEccSramErrorStatus_t
 *     nvmlDeviceGetFieldValue 0 165 3 = 0 1                GPU, field, scope; no scope is any
 *     nvmlDeviceGetP2PStatus 0 1 2 = 0 0                   from, to, capability; a file may list
 *                                                          one direction for both
 *     nvmlDeviceGetGpuFabricInfoV 0 = 0 state | status | uuid | clique | health mask [| summary]
 *
 * An optional file `faults` in the same directory spoils the answers, one fault a line:
 *
 *     hang <function>          never return
 *     slow <function> <ms>     answer late
 *     lost <gpu>               every call on that GPU answers 15; its handle is still found
 *     gone <gpu>               as lost, and its handle answers 15 too
 *     code <function|*> <rc>   answer rc
 *     garbage <function>       succeed, and hand back bytes without meaning
 *     noise <text>             print text to standard output in nvmlInit, as chatty drivers do
 *     crash <function>         kill the process
 *     leak <function> <KiB>    keep so much memory for ever
 *     fsync <function> <file>  write to the file first, which never ends on a frozen file system
 *
 * Both files are read again when they change, so a test can break a running machine. A third one,
 * `events`, has what happens by itself (events.h).
 * Layouts of the structs are those of nvml.h as pynvml declares them. -DWITHOUT_NEWER leaves out
 * functions that later drivers added, to play an older library; -DONLY_FABRIC_V3 takes no older
 * version of that struct, which nvml.h announces for a later one.
 */

#include "structs.h"
/* ---- the library ------------------------------------------------------------------------ */

static int start(const char *function) {
    int is_garbage, code = enter(function, -1, &is_garbage);
    if (code != -1) return code;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < fault_count; i++)
        if (!strcmp(faults[i].kind, "noise")) puts(faults[i].text), fflush(stdout);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int slot = 0; slot <= MAX_MIG; slot++) devices[gpu][slot] = (Device){gpu, slot - 1};
    initialised++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int nvmlInit_v2(void) { return start("nvmlInit_v2"); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return start("nvmlInitWithFlags");
}

int nvmlShutdown(void) {
    int is_garbage, code = enter("nvmlShutdown", -1, &is_garbage);
    if (code != -1) return code;
    pthread_mutex_lock(&lock);
    initialised--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "The operation was successful";
        case NOT_SUPPORTED: return "Not Supported";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "An error of the fake library";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    return give_text(ask_at("nvmlSystemGetDriverVersion", -1, ""), to, size);
}

int nvmlSystemGetNVMLVersion(char *to, unsigned size) {
    return give_text(ask_at("nvmlSystemGetNVMLVersion", -1, ""), to, size);
}

int nvmlSystemGetCudaDriverVersion(unsigned *to) {
    return give_1(ask_at("nvmlSystemGetCudaDriverVersion_v2", -1, ""), to);
}

int nvmlDeviceGetCount_v2(unsigned *to) {
    return give_1(ask_at("nvmlDeviceGetCount_v2", -1, ""), to);
}

static unsigned gpu_count(void) {
    pthread_mutex_lock(&lock);
    const Line *line = find("nvmlDeviceGetCount_v2");
    unsigned count = line ? (unsigned)strtoul(line->text, NULL, 0) : 0;
    pthread_mutex_unlock(&lock);
    return count < MAX_GPUS ? count : MAX_GPUS;
}

/* Handles exist for every GPU counted; a line is needed only to make one fail. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **to) {
    Answer answer = ask_at("nvmlDeviceGetHandleByIndex_v2", -1, " %u", index);
    if (answer.code != SUCCESS && answer.code != NOT_SUPPORTED) return answer.code;
    if (index >= gpu_count()) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    int gone = is_lost((int)index, 1);
    pthread_mutex_unlock(&lock);
    *to = &devices[index][0];
    return gone ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **to) {
    for (unsigned gpu = 0; gpu < gpu_count(); gpu++) {
        for (int slot = 0; slot <= MAX_MIG; slot++) { /* 0 is the GPU itself */
            Answer answer = ask("nvmlDeviceGetUUID", &devices[gpu][slot], -1);
            *to = &devices[gpu][slot];
            if (answer.code == SUCCESS && !strcmp(answer.text, uuid)) return SUCCESS;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(Device *device, unsigned *to) {
    if (!device) return INVALID_ARGUMENT;
    *to = (unsigned)device->gpu;
    return SUCCESS;
}

#define DEVICE_TEXT(function) \
    int function(Device *device, char *to, unsigned size) { \
        return give_text(ask(#function, device, -1), to, size); \
    }
#define DEVICE_1(function) \
    int function(Device *device, unsigned *to) { return give_1(ask(#function, device, -1), to); }
#define DEVICE_2(function) \
    int function(Device *device, unsigned *a, unsigned *b) { \
        return give_2(ask(#function, device, -1), a, b); \
    }
#define LINK_1(function) \
    int function(Device *device, unsigned link, unsigned *to) { \
        return give_1(ask(#function, device, (int)link), to); \
    }

DEVICE_TEXT(nvmlDeviceGetName)
DEVICE_TEXT(nvmlDeviceGetUUID)
DEVICE_TEXT(nvmlDeviceGetSerial)
DEVICE_TEXT(nvmlDeviceGetVbiosVersion)
DEVICE_1(nvmlDeviceGetMinorNumber)
DEVICE_1(nvmlDeviceGetArchitecture)
DEVICE_1(nvmlDeviceGetPersistenceMode)
DEVICE_1(nvmlDeviceGetCurrPcieLinkGeneration)
DEVICE_1(nvmlDeviceGetCurrPcieLinkWidth)
DEVICE_1(nvmlDeviceGetMaxPcieLinkGeneration)
DEVICE_1(nvmlDeviceGetMaxPcieLinkWidth)
DEVICE_1(nvmlDeviceGetBoardId)
DEVICE_1(nvmlDeviceGetRetiredPagesPendingStatus)
DEVICE_2(nvmlDeviceGetCudaComputeCapability)
DEVICE_2(nvmlDeviceGetEccMode)
LINK_1(nvmlDeviceGetNvLinkState)
LINK_1(nvmlDeviceGetNvLinkVersion)

#include "mig.h"
#include "peer.h"
#include "events.h"
#include "clocks.h"

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *to) {
    return give_pci(ask("nvmlDeviceGetPciInfo_v3", device, -1), to);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, PciInfo *to) {
    return give_pci(ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, (int)link), to);
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *to) {
    Answer answer = ask("nvmlDeviceGetMemoryInfo", device, -1);
    if (answer.code != SUCCESS) return answer.code;
    memset(to, 0xa5, sizeof *to);
    if (answer.garbage) return SUCCESS;
    to->total = strtoull(part(&answer, 0), NULL, 0);
    to->free = strtoull(part(&answer, 1), NULL, 0);
    to->used = strtoull(part(&answer, 2), NULL, 0);
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(Device *device, unsigned words, unsigned long *mask) {
    return give_mask(ask("nvmlDeviceGetCpuAffinity", device, -1), words, mask);
}

/* The caller's variable is 64 bits wide in pynvml; nvml.h has an enum there. */
int nvmlDeviceGetVirtualizationMode(Device *device, unsigned *to) {
    return give_1(ask("nvmlDeviceGetVirtualizationMode", device, -1), to);
}

int nvmlDeviceGetTotalEccErrors(Device *device, unsigned type, unsigned counter,
                                unsigned long long *to) {
    char name[32];
    if (!device) return INVALID_ARGUMENT;
    Answer answer = ask_at("nvmlDeviceGetTotalEccErrors", device->gpu, " %s %u %u",
                           name_of(device, name, sizeof name), type, counter);
    if (answer.code == SUCCESS)
        *to = answer.garbage ? 0xa5a5a5a5a5a5a5a5ull : strtoull(answer.text, NULL, 0);
    return answer.code;
}

int nvmlDeviceGetTopologyCommonAncestor(Device *a, Device *b, unsigned *to) {
    return give_pair("nvmlDeviceGetTopologyCommonAncestor", a, b, -1, to);
}

int nvmlDeviceGetP2PStatus(Device *a, Device *b, unsigned caps, unsigned *to) {
    return give_pair("nvmlDeviceGetP2PStatus", a, b, (int)caps, to);
}

static void give_field(const Device *device, FieldValue *field) {
    char name[32];
    Answer answer;
    name_of(device, name, sizeof name);
    answer = ask_at("nvmlDeviceGetFieldValue", device->gpu, " %s %u %u", name, field->field,
                    field->scope);
    if (answer.code == NOT_SUPPORTED && field->scope == 0)
        answer = ask_at("nvmlDeviceGetFieldValue", device->gpu, " %s %u", name, field->field);
    field->code = (uint32_t)answer.code;
    field->type = answer.garbage ? 0xa5a5a5a5u : 1; /* 1: unsigned int */
    field->value.ull = answer.garbage ? 0xa5a5a5a5a5a5a5a5ull : strtoull(answer.text, NULL, 0);
    if (field->value.ull >> 32 && !answer.garbage) field->type = 3; /* unsigned long long */
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *fields) {
    int is_garbage, code;
    if (!device || count < 1) return INVALID_ARGUMENT;
    code = enter("nvmlDeviceGetFieldValues", device->gpu, &is_garbage);
    if (code != -1) return code;
    for (int i = 0; i < count; i++) give_field(device, &fields[i]);
    return SUCCESS;
}

#ifndef WITHOUT_NEWER
int nvmlDeviceGetRemappedRows(Device *device, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed) {
    Answer answer = ask("nvmlDeviceGetRemappedRows", device, -1);
    if (answer.code != SUCCESS) return answer.code;
    *correctable = number(&answer, 0), *uncorrectable = number(&answer, 1);
    *pending = number(&answer, 2), *failed = number(&answer, 3);
    return SUCCESS;
}
#endif

/* The older call reads the same line as the newer one: one machine, two libraries. */
int nvmlDeviceGetGpuFabricInfo(Device *device, FabricInfo *to) {
    Answer answer = ask("nvmlDeviceGetGpuFabricInfoV", device, -1);
    return give_fabric(&answer, to);
}

#ifndef WITHOUT_NEWER
DEVICE_1(nvmlDeviceGetModuleId)
DEVICE_1(nvmlDeviceGetNumaNodeId)
DEVICE_1(nvmlDeviceGetC2cModeInfoV) /* a struct of one number */

int nvmlDeviceGetMemoryAffinity(Device *device, unsigned words, unsigned long *mask,
                                unsigned scope) {
    return give_mask(ask("nvmlDeviceGetMemoryAffinity", device, (int)scope), words, mask);
}

int nvmlSystemGetConfComputeState(ConfComputeState *to) {
    Answer answer = ask_at("nvmlSystemGetConfComputeState", -1, "");
    if (answer.code != SUCCESS) return answer.code;
    to->environment = number(&answer, 0);
    to->feature = number(&answer, 1), to->dev_tools = number(&answer, 2);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(unsigned *to) {
    return give_1(ask_at("nvmlSystemGetCudaDriverVersion_v2", -1, ""), to);
}

/* The counts, then whether the threshold is exceeded: what nvidia-smi prints of a GPU. */
int nvmlDeviceGetSramEccErrorStatus(Device *device, SramStatus *to) {
    if (!to || to->version != 0x1000068u) return VERSION_MISMATCH;
    Answer answer = ask("nvmlDeviceGetSramEccErrorStatus", device, -1);
    if (answer.code != SUCCESS) return answer.code;
    for (int i = 0; i < 11; i++) to->counts[i] = number(&answer, i);
    to->is_over_threshold = number(&answer, 11);
    return SUCCESS;
}

LINK_1(nvmlDeviceGetNvLinkRemoteDeviceType)

/* The low 24 bits of a version are the size of the caller's struct: 36 bytes in 2, 40 in 3. */
int nvmlDeviceGetGpuFabricInfoV(Device *device, FabricInfoV *to) {
#ifdef ONLY_FABRIC_V3
    const unsigned oldest = 3;
#else
    const unsigned oldest = 2;
#endif
    if (!to || (to->version != 0x2000024u && to->version != 0x3000028u)) return VERSION_MISMATCH;
    if (to->version >> 24 < oldest) return VERSION_MISMATCH;
    Answer answer = ask("nvmlDeviceGetGpuFabricInfoV", device, -1);
    int code = give_fabric(&answer, &to->info);
    if (code == SUCCESS) to->health_mask = number(&answer, 4);
    if (code == SUCCESS && to->version >> 24 == 3) to->health_summary = (uint8_t)number(&answer, 5);
    return code;
}
#endif
