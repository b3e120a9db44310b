{{/* The name of every object. */}}
{{- define "nodetopo.name" -}}
{{- $name := default "nodetopo" .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "nodetopo.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nodetopo.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "nodetopo.selector" -}}
app.kubernetes.io/name: nodetopo
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "nodetopo.labels" -}}
{{ include "nodetopo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nodetopo.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodetopo.priorityClass" -}}
{{- if .Values.priorityClass.create -}}
{{ include "nodetopo.name" . }}
{{- else -}}
{{ .Values.priorityClass.name }}
{{- end -}}
{{- end }}

{{/* Which nodes the agent runs on: the chart's node affinity, unless the values have one. */}}
{{- define "nodetopo.affinity" -}}
{{- /* The GPU Operator takes its own plugin away by this label before it unloads the driver or
changes MIG devices; the agent's pod goes and comes back with it. Nodes without the label match. */ -}}
{{- $stays := dict "key" "nvidia.com/gpu.deploy.device-plugin" "operator" "NotIn" "values" (list "false" "paused-for-driver-upgrade" "paused-for-mig-change") -}}
{{- $terms := list (dict "matchExpressions" (list $stays)) -}}
{{- if .Values.gpuNodesOnly -}}
{{- $terms = list -}}
{{- range .Files.Get "files/gpu-nodes.yaml" | fromYamlArray -}}
{{- $terms = append $terms (dict "matchExpressions" (list . $stays)) -}}
{{- end -}}
{{- end -}}
{{- $ours := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- toYaml (merge (deepCopy .Values.affinity) (ternary (dict) (dict "nodeAffinity" $ours) (hasKey .Values.affinity "nodeAffinity"))) -}}
{{- end }}

{{- define "nodetopo.podSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- with (include "nodetopo.distribution" . | fromYaml).seLinuxType -}}
{{- $context = merge $context (dict "seLinuxOptions" (dict "type" .)) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end }}

{{/* The container's security context: the chart's, under the fields of the values. */}}
{{- define "nodetopo.securityContext" -}}
{{- $context := dict "runAsUser" 0 "readOnlyRootFilesystem" true -}}
{{- if .Values.components.kernelLog -}}
{{- $_ := set $context "privileged" true -}}
{{- else -}}
{{- $capabilities := dict "drop" (list "ALL") -}}
{{- if include "nodetopo.migAccess" . -}}{{- $_ := set $capabilities "add" (list "SYS_ADMIN") -}}{{- end -}}
{{- $_ := set $context "allowPrivilegeEscalation" false -}}
{{- $_ := set $context "capabilities" $capabilities -}}
{{- end -}}
{{- toYaml (mergeOverwrite $context (deepCopy .Values.securityContext)) -}}
{{- end }}

{{/* Whether the components are on that others are a part of. */}}
{{- define "nodetopo.hostDevices" -}}
{{- with .Values.components }}{{ if or .hostDevices .cdi .dra .hostAudit }}yes{{ end }}{{ end -}}
{{- end }}
{{- define "nodetopo.hostPrograms" -}}
{{- with .Values.components }}{{ if or .hostPrograms .cdi .dra .hostAudit }}yes{{ end }}{{ end -}}
{{- end }}
{{- define "nodetopo.migAccess" -}}
{{- with .Values.components }}{{ if or .migAccess .mig }}yes{{ end }}{{ end -}}
{{- end }}

{{/* A ClusterRole and its binding to the agent: (list $ "suffix" rules) */}}
{{- define "nodetopo.clusterRole" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s%s" (include "nodetopo.name" $root) (index . 1) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "nodetopo.labels" $root | nindent 4 }}
rules:
  {{- index . 2 | toYaml | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "nodetopo.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name | quote }}
subjects:
  {{- include "nodetopo.subject" $root | nindent 2 }}
{{- end }}

{{- define "nodetopo.subject" -}}
- kind: ServiceAccount
  name: {{ include "nodetopo.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* A map of texts, whatever words of YAML its values look like: `--set nodeSelector.gpu=true`. */}}
{{- define "nodetopo.texts" -}}
{{- $texts := dict -}}
{{- range $key, $value := . -}}{{- $_ := set $texts $key (toString $value) -}}{{- end -}}
{{- toYaml $texts -}}
{{- end }}

{{/* The settings of the agent: those of the components, then those of the values. */}}
{{- define "nodetopo.settings" -}}
{{- $settings := dict -}}
{{- if not (include "nodetopo.offers" .) -}}{{- $_ := set $settings "offer-gpus" "never" -}}{{- end -}}
{{- if not .Values.gfdLabels -}}{{- $_ := set $settings "publish-gfd-labels" "false" -}}{{- end -}}
{{- with .Values.components -}}
{{- if and .nfdFile .nodeFeature -}}{{- fail "components.nfdFile and components.nodeFeature are two ways to hand the same labels to NFD: turn one of them off" -}}{{- end -}}
{{- if or .cdi .dra -}}{{- $_ := set $settings "cdi-spec" "write" -}}{{- end -}}
{{- if .dra -}}{{- $_ := set $settings "dra" "true" -}}{{- end -}}
{{- if .pluginsRegistry -}}{{- $_ := set $settings "registration" "watcher" -}}{{- end -}}
{{- if .nfdFile -}}{{- $_ := set $settings "label-outputs" "nfd-file" -}}{{- end -}}
{{- if .nodeFeature -}}{{- $_ := set $settings "label-outputs" "node-feature" -}}{{- end -}}
{{- if .observedPlacement -}}{{- $_ := set $settings "annotate-pods" "true" -}}{{- end -}}
{{- if .podEvents -}}{{- $_ := set $settings "publish-pod-events" "true" -}}{{- end -}}
{{- if .podPlacement -}}{{- $_ := set $settings "pod-policies" "true" -}}{{- $_ := set $settings "tell-pods" "true" -}}{{- end -}}
{{- if .rejections -}}{{- $_ := set $settings "explain-rejections" "true" -}}{{- end -}}
{{- if .zones -}}{{- $_ := set $settings "publish-zones" "true" -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- if kindIs "slice" $value -}}
{{- $_ := set $settings $name (join "," $value) -}}
{{- else -}}
{{- $_ := set $settings $name (toString $value) -}}
{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end }}

{{/* The ConfigMap with the named configs; empty where there are none. */}}
{{- define "nodetopo.configs" -}}
{{- with .Values.namedConfigs -}}
{{- if .configMap -}}
{{ .configMap }}
{{- else if or .configs $.Values.components.namedConfig -}}
{{ include "nodetopo.name" $ }}-configs
{{- end -}}
{{- end -}}
{{- end }}

{{/* The ConfigMap with the pools of HCAs: ours where they are given as values. */}}
{{- define "nodetopo.rdma" -}}
{{- if .Values.rdma.config -}}
{{ include "nodetopo.name" . }}-rdma
{{- else -}}
{{ .Values.rdma.configMap }}
{{- end -}}
{{- end }}

{{/* What files/distributions.yaml says of the distribution, as YAML; empty without one. */}}
{{- define "nodetopo.distribution" -}}
{{- with .Values.distribution -}}
{{- get ($.Files.Get "files/distributions.yaml" | fromYaml) . | toYaml -}}
{{- end -}}
{{- end }}

{{- define "nodetopo.kubeletRootDir" -}}
{{- $distribution := include "nodetopo.distribution" . | fromYaml -}}
{{- coalesce .Values.kubeletRootDir $distribution.kubeletRootDir "/var/lib/kubelet" -}}
{{- end }}

{{/* Whether the agent advertises GPUs to the kubelet; empty for no. */}}
{{- define "nodetopo.offers" -}}
{{- $distribution := include "nodetopo.distribution" . | fromYaml -}}
{{- if hasKey .Values.settings "offer-gpus" -}}
{{- ne (index .Values.settings "offer-gpus") "never" | ternary "yes" "" -}}
{{- else if and .Values.devicePlugin.enabled (ne (toString $distribution.offer) "false") -}}yes{{- end -}}
{{- end }}

{{/* What components and distribution mount of the host: name, mountPath, path, type, writable. */}}
{{- define "nodetopo.hostMounts" -}}
{{- $mounts := list -}}
{{- $distribution := include "nodetopo.distribution" . | fromYaml -}}
{{- range $distribution.mounts -}}
{{- $mounts = append $mounts (merge (dict "mountPath" (printf "/host%s" .path)) .) -}}
{{- end -}}
{{- if include "nodetopo.hostDevices" . -}}
{{- $mounts = append $mounts (dict "name" "host-devices" "mountPath" "/host/dev" "path" "/dev" "type" "Directory") -}}
{{- end -}}
{{- if include "nodetopo.hostPrograms" . -}}
{{- $mounts = append $mounts (dict "name" "host-programs" "mountPath" "/host/usr" "path" "/usr" "type" "Directory") -}}
{{- end -}}
{{- $kubelet := include "nodetopo.kubeletRootDir" . -}}
{{- with .Values.components -}}
{{- if or .cdi .dra -}}
{{- $mounts = append $mounts (dict "name" "cdi" "mountPath" "/host/var/run/cdi" "path" "/var/run/cdi" "type" "DirectoryOrCreate" "writable" true) -}}
{{- end -}}
{{- if .loaderCache -}}
{{- $mounts = append $mounts (dict "name" "loader-cache" "mountPath" "/host/etc/ld.so.cache" "path" "/etc/ld.so.cache" "type" "File") -}}
{{- end -}}
{{- if .ncclHints -}}
{{- $mounts = append $mounts (dict "name" "nccl-hints" "mountPath" "/host/run/nodetopo/nccl" "path" "/run/nodetopo/nccl" "type" "DirectoryOrCreate" "writable" true) -}}
{{- end -}}
{{- if .nfdFile -}}
{{- $features := "/etc/kubernetes/node-feature-discovery/features.d" -}}
{{- $mounts = append $mounts (dict "name" "features" "mountPath" $features "path" $features "type" "DirectoryOrCreate" "writable" true) -}}
{{- end -}}
{{- if or .pluginsRegistry .dra -}}
{{- $mounts = append $mounts (dict "name" "plugins-registry" "mountPath" "/var/lib/kubelet/plugins_registry" "path" (printf "%s/plugins_registry" $kubelet) "type" "Directory" "writable" true) -}}
{{- end -}}
{{- if and .kubeletConfig (not $distribution) -}}
{{- $mounts = append $mounts (dict "name" "kubelet-config" "mountPath" "/host/var/lib/kubelet/config.yaml" "path" (printf "%s/config.yaml" $kubelet) "type" "File") -}}
{{- $mounts = append $mounts (dict "name" "kubelet-drop-ins" "mountPath" "/host/etc/kubernetes/kubelet.conf.d" "path" "/etc/kubernetes/kubelet.conf.d" "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- if and (or .handOver .hostAudit) (or $distribution.toolkit (not $distribution)) -}}
{{- /* No types: with type Directory a pod whose node lacks one of them would not start. */ -}}
{{- $mounts = append $mounts (dict "name" "host-etc-cdi" "mountPath" "/host/etc/cdi" "path" "/etc/cdi") -}}
{{- $mounts = append $mounts (dict "name" "host-run-cdi" "mountPath" "/host/run/cdi" "path" "/run/cdi") -}}
{{- $mounts = append $mounts (dict "name" "host-toolkit" "mountPath" "/host/etc/nvidia-container-runtime" "path" "/etc/nvidia-container-runtime") -}}
{{- $mounts = append $mounts (dict "name" "host-local" "mountPath" "/host/usr/local" "path" "/usr/local") -}}
{{- end -}}
{{- if and (or .handOver .hostAudit) (not $distribution) -}}
{{- $mounts = append $mounts (dict "name" "host-etc-containerd" "mountPath" "/host/etc/containerd" "path" "/etc/containerd") -}}
{{- end -}}
{{- if and .hostAudit (not $distribution) -}}
{{- $mounts = append $mounts (dict "name" "host-etc-crio" "mountPath" "/host/etc/crio" "path" "/etc/crio") -}}
{{- end -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end }}
