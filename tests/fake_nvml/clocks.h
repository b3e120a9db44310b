/* Why the clocks of a GPU are low. Included once, by libnvidia-ml.c. */

static int give_reasons(Device *device, unsigned long long *to) {
    Answer answer = ask("nvmlDeviceGetCurrentClocksEventReasons", device, -1);
    if (answer.code == SUCCESS)
        *to = answer.garbage ? 0xa5a5a5a5a5a5a5a5ull : strtoull(answer.text, NULL, 0);
    return answer.code;
}

/* The older call reads the same line as the newer one: one machine, two libraries. */
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *to) {
    return give_reasons(device, to);
}

#ifndef WITHOUT_NEWER
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *to) {
    return give_reasons(device, to);
}
#endif
