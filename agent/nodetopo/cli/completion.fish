function __nodetopo_complete
  set -l tokens (commandline -opc)
  set -l current (commandline -ct)
  set -l path ''
  for token in $tokens
    switch "$path $token"
      case ' run' ' topo' ' topo matrix' ' topo tree' ' topo path' ' topo complexes' ' labels' ' publish' ' cleanup' ' health' ' audit' ' admit' ' export' ' doctor' ' migrate' ' allocate' ' capture' ' support' ' nccl' ' nccl env' ' nccl xml' ' nccl check' ' explain' ' explain-claim' ' simulate' ' simulate machines' ' simulate clusters' ' completion' ' version'
        set path "$path $token"
    end
  end
  switch "$path:$tokens[-1]"
    case ' run:--config' ' run:--config-file'
      __fish_complete_path $current
    case ' run:--node-name'
      true
    case ' run:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' run:--snapshot'
      __fish_complete_path $current
    case ' run:--sysfs-root'
      __fish_complete_path $current
    case ' run:--procfs-root'
      __fish_complete_path $current
    case ' run:--host-root'
      __fish_complete_path $current
    case ' run:--nvml-library'
      __fish_complete_path $current
    case ' run:--scan-interval'
      true
    case ' run:--metrics-address'
      true
    case ' run:--log-format'
      printf '%s\n' auto json text
    case ' run:--log-level'
      printf '%s\n' debug info warning error
    case ' run:--kubeconfig'
      __fish_complete_path $current
    case ' run:--config-dir'
      __fish_complete_path $current
    case ' run:--config-label'
      true
    case ' run:--default-config'
      true
    case ' run:--config-fallbacks'
      true
    case ' run:--label-outputs'
      true
    case ' run:--nfd-file'
      __fish_complete_path $current
    case ' run:--namespace'
      true
    case ' run:--pod-name'
      true
    case ' run:--label-prefix'
      true
    case ' run:--publish-clique'
      printf '%s\n' auto always never
    case ' run:--topology-levels'
      printf '%s\n' off auto topograph topograph-0.5 topograph-0.1 aws-4 aws gke oci oci-host coreweave coreweave-ib crusoe
    case ' run:--topology-levels-file'
      __fish_complete_path $current
    case ' run:--registration'
      printf '%s\n' socket watcher both
    case ' run:--device-plugin-dir'
      __fish_complete_path $current
    case ' run:--plugins-registry-dir'
      __fish_complete_path $current
    case ' run:--pod-resources-socket'
      __fish_complete_path $current
    case ' run:--resource-name'
      true
    case ' run:--offer-gpus'
      printf '%s\n' auto always never
    case ' run:--dra-unhealthy'
      printf '%s\n' keep evict
    case ' run:--dra-devices'
      printf '%s\n' auto gpus sets
    case ' run:--dra-set-sizes'
      true
    case ' run:--mig-strategy'
      printf '%s\n' none single mixed
    case ' run:--time-slicing'
      true
    case ' run:--exclude-gpus'
      true
    case ' run:--numa-mode'
      printf '%s\n' numa socket none
    case ' run:--placement-policy'
      true
    case ' run:--bandwidth-model'
      printf '%s\n' ring relay table
    case ' run:--bandwidth-table'
      __fish_complete_path $current
    case ' run:--device-list-strategy'
      true
    case ' run:--driver-root'
      __fish_complete_path $current
    case ' run:--dev-root'
      __fish_complete_path $current
    case ' run:--cdi-kind'
      true
    case ' run:--cdi-annotation-prefix'
      true
    case ' run:--cdi-spec'
      printf '%s\n' none write
    case ' run:--cdi-spec-dir'
      __fish_complete_path $current
    case ' run:--cdi-hook'
      __fish_complete_path $current
    case ' run:--cdi-disable-hooks'
      true
    case ' run:--imex-channels'
      true
    case ' run:--imex-required'
      true
    case ' run:--nccl-hints-dir'
      __fish_complete_path $current
    case ' run:--rdma-config'
      __fish_complete_path $current
    case ' run:--rdma-mode'
      printf '%s\n' shared chosen exclusive
    case ' run:--rdma-hand-over'
      printf '%s\n' device-specs cdi-cri
    case ' run:--rdma-cdi-kind'
      true
    case ' run:--job-variables'
      true
    case ' run:--gpu-hca-resource'
      true
    case ' run:--xid-classes'
      true
    case ' run:--recovery'
      true
    case ' run:--expect-gpus'
      true
    case ' run:--gpu-count-file'
      __fish_complete_path $current
    case ' run:--health-file'
      __fish_complete_path $current
    case ' run:--kernel-log'
      __fish_complete_path $current
    case ' run:--checks-file'
      __fish_complete_path $current
    case ' run:--kubelet-url'
      true
    case ' run:--kubelet-ca-file'
      __fish_complete_path $current
    case ' run:-mig-strategy'
      true
    case ' run:--fail-on-init-error'
      true
    case ' run:-fail-on-init-error'
      true
    case ' run:--nvidia-driver-root'
      true
    case ' run:-nvidia-driver-root'
      true
    case ' run:-driver-root'
      true
    case ' run:--nvidia-dev-root'
      true
    case ' run:-nvidia-dev-root'
      true
    case ' run:-dev-root'
      true
    case ' run:--pass-device-specs'
      true
    case ' run:-pass-device-specs'
      true
    case ' run:-device-list-strategy'
      true
    case ' run:--device-id-strategy'
      true
    case ' run:-device-id-strategy'
      true
    case ' run:--gdrcopy-enabled'
      true
    case ' run:-gdrcopy-enabled'
      true
    case ' run:--gds-enabled'
      true
    case ' run:-gds-enabled'
      true
    case ' run:--mofed-enabled'
      true
    case ' run:-mofed-enabled'
      true
    case ' run:-cdi-annotation-prefix'
      true
    case ' run:--nvidia-cdi-hook-path' ' run:--nvidia-ctk-path'
      true
    case ' run:-nvidia-cdi-hook-path'
      true
    case ' run:-nvidia-ctk-path'
      true
    case ' run:--driver-root-ctr-path' ' run:--container-driver-root'
      true
    case ' run:-driver-root-ctr-path'
      true
    case ' run:-container-driver-root'
      true
    case ' run:--mps-root'
      true
    case ' run:-mps-root'
      true
    case ' run:--device-discovery-strategy'
      true
    case ' run:-device-discovery-strategy'
      true
    case ' run:--shared-devices-allocation-policy'
      true
    case ' run:-shared-devices-allocation-policy'
      true
    case ' run:--imex-channel-ids'
      true
    case ' run:-imex-channel-ids'
      true
    case ' run:-imex-required'
      true
    case ' run:--kubelet-socket'
      true
    case ' run:-kubelet-socket'
      true
    case ' run:--cdi-feature-flags'
      true
    case ' run:-cdi-feature-flags'
      true
    case ' run:-cdi-disable-hooks'
      true
    case ' run:--use-node-feature-api'
      true
    case ' run:-use-node-feature-api'
      true
    case ' run:--oneshot'
      true
    case ' run:-oneshot'
      true
    case ' run:--no-timestamp'
      true
    case ' run:-no-timestamp'
      true
    case ' run:--sleep-interval'
      true
    case ' run:-sleep-interval'
      true
    case ' run:--output-file'
      true
    case ' run:-output-file'
      true
    case ' run:--machine-type-file'
      true
    case ' run:-machine-type-file'
      true
    case ' run:-config-file'
      true
    case ' topo matrix:-o' ' topo matrix:--output'
      printf '%s\n' table short json yaml svg
    case ' topo matrix:--snapshot'
      __fish_complete_path $current
    case ' topo matrix:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' topo matrix:--topo-m'
      __fish_complete_path $current
    case ' topo matrix:--nccl-xml'
      __fish_complete_path $current
    case ' topo matrix:--sysfs-root'
      __fish_complete_path $current
    case ' topo matrix:--procfs-root'
      __fish_complete_path $current
    case ' topo matrix:--host-root'
      __fish_complete_path $current
    case ' topo matrix:--nvml-library'
      __fish_complete_path $current
    case ' topo matrix:--node-name'
      true
    case ' topo matrix:--kubeconfig'
      __fish_complete_path $current
    case ' topo matrix:--pod-resources-socket'
      __fish_complete_path $current
    case ' topo matrix:--kubelet-url'
      true
    case ' topo matrix:--kubelet-ca-file'
      __fish_complete_path $current
    case ' topo tree:-o' ' topo tree:--output'
      printf '%s\n' table short json yaml svg
    case ' topo tree:--snapshot'
      __fish_complete_path $current
    case ' topo tree:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' topo tree:--topo-m'
      __fish_complete_path $current
    case ' topo tree:--nccl-xml'
      __fish_complete_path $current
    case ' topo tree:--sysfs-root'
      __fish_complete_path $current
    case ' topo tree:--procfs-root'
      __fish_complete_path $current
    case ' topo tree:--host-root'
      __fish_complete_path $current
    case ' topo tree:--nvml-library'
      __fish_complete_path $current
    case ' topo tree:--node-name'
      true
    case ' topo tree:--kubeconfig'
      __fish_complete_path $current
    case ' topo tree:--pod-resources-socket'
      __fish_complete_path $current
    case ' topo tree:--kubelet-url'
      true
    case ' topo tree:--kubelet-ca-file'
      __fish_complete_path $current
    case ' topo path:--bandwidth-table'
      __fish_complete_path $current
    case ' topo path:-o' ' topo path:--output'
      printf '%s\n' table short json yaml svg
    case ' topo path:--snapshot'
      __fish_complete_path $current
    case ' topo path:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' topo path:--topo-m'
      __fish_complete_path $current
    case ' topo path:--nccl-xml'
      __fish_complete_path $current
    case ' topo path:--sysfs-root'
      __fish_complete_path $current
    case ' topo path:--procfs-root'
      __fish_complete_path $current
    case ' topo path:--host-root'
      __fish_complete_path $current
    case ' topo path:--nvml-library'
      __fish_complete_path $current
    case ' topo path:--node-name'
      true
    case ' topo path:--kubeconfig'
      __fish_complete_path $current
    case ' topo path:--pod-resources-socket'
      __fish_complete_path $current
    case ' topo path:--kubelet-url'
      true
    case ' topo path:--kubelet-ca-file'
      __fish_complete_path $current
    case ' topo complexes:-o' ' topo complexes:--output'
      printf '%s\n' table short json yaml
    case ' topo complexes:--snapshot'
      __fish_complete_path $current
    case ' topo complexes:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' topo complexes:--topo-m'
      __fish_complete_path $current
    case ' topo complexes:--nccl-xml'
      __fish_complete_path $current
    case ' topo complexes:--sysfs-root'
      __fish_complete_path $current
    case ' topo complexes:--procfs-root'
      __fish_complete_path $current
    case ' topo complexes:--host-root'
      __fish_complete_path $current
    case ' topo complexes:--nvml-library'
      __fish_complete_path $current
    case ' topo complexes:--node-name'
      true
    case ' topo complexes:--kubeconfig'
      __fish_complete_path $current
    case ' topo complexes:--pod-resources-socket'
      __fish_complete_path $current
    case ' topo complexes:--kubelet-url'
      true
    case ' topo complexes:--kubelet-ca-file'
      __fish_complete_path $current
    case ' labels:-o' ' labels:--output'
      printf '%s\n' table short json yaml
    case ' labels:--snapshot'
      __fish_complete_path $current
    case ' labels:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' labels:--topo-m'
      __fish_complete_path $current
    case ' labels:--nccl-xml'
      __fish_complete_path $current
    case ' labels:--sysfs-root'
      __fish_complete_path $current
    case ' labels:--procfs-root'
      __fish_complete_path $current
    case ' labels:--host-root'
      __fish_complete_path $current
    case ' labels:--nvml-library'
      __fish_complete_path $current
    case ' labels:--node-name'
      true
    case ' labels:--kubeconfig'
      __fish_complete_path $current
    case ' labels:--pod-resources-socket'
      __fish_complete_path $current
    case ' labels:--kubelet-url'
      true
    case ' labels:--kubelet-ca-file'
      __fish_complete_path $current
    case ' labels:--label-prefix'
      true
    case ' labels:--mig-strategy'
      true
    case ' labels:--time-slicing'
      true
    case ' labels:--topology-levels-file'
      __fish_complete_path $current
    case ' publish:-o' ' publish:--output'
      printf '%s\n' table short json yaml
    case ' publish:--label-outputs'
      true
    case ' publish:--nfd-file'
      __fish_complete_path $current
    case ' publish:--namespace'
      true
    case ' publish:--label-prefix'
      true
    case ' publish:--mig-strategy'
      true
    case ' publish:--time-slicing'
      true
    case ' publish:--topology-levels-file'
      __fish_complete_path $current
    case ' publish:--publish-clique'
      true
    case ' publish:--topology-levels'
      true
    case ' publish:--snapshot'
      __fish_complete_path $current
    case ' publish:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' publish:--topo-m'
      __fish_complete_path $current
    case ' publish:--nccl-xml'
      __fish_complete_path $current
    case ' publish:--sysfs-root'
      __fish_complete_path $current
    case ' publish:--procfs-root'
      __fish_complete_path $current
    case ' publish:--host-root'
      __fish_complete_path $current
    case ' publish:--nvml-library'
      __fish_complete_path $current
    case ' publish:--node-name'
      true
    case ' publish:--kubeconfig'
      __fish_complete_path $current
    case ' publish:--pod-resources-socket'
      __fish_complete_path $current
    case ' publish:--kubelet-url'
      true
    case ' publish:--kubelet-ca-file'
      __fish_complete_path $current
    case ' cleanup:-o' ' cleanup:--output'
      printf '%s\n' table short json yaml
    case ' cleanup:--label-outputs'
      true
    case ' cleanup:--nfd-file'
      __fish_complete_path $current
    case ' cleanup:--namespace'
      true
    case ' cleanup:--sysfs-root'
      __fish_complete_path $current
    case ' cleanup:--procfs-root'
      __fish_complete_path $current
    case ' cleanup:--host-root'
      __fish_complete_path $current
    case ' cleanup:--nvml-library'
      __fish_complete_path $current
    case ' cleanup:--node-name'
      true
    case ' cleanup:--kubeconfig'
      __fish_complete_path $current
    case ' cleanup:--pod-resources-socket'
      __fish_complete_path $current
    case ' cleanup:--kubelet-url'
      true
    case ' cleanup:--kubelet-ca-file'
      __fish_complete_path $current
    case ' health:--only'
      true
    case ' health:--clear'
      true
    case ' health:--checks-file'
      __fish_complete_path $current
    case ' health:--health-file'
      __fish_complete_path $current
    case ' health:--device-plugin-dir'
      __fish_complete_path $current
    case ' health:-o' ' health:--output'
      printf '%s\n' table short json yaml
    case ' health:--snapshot'
      __fish_complete_path $current
    case ' health:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' health:--topo-m'
      __fish_complete_path $current
    case ' health:--nccl-xml'
      __fish_complete_path $current
    case ' health:--sysfs-root'
      __fish_complete_path $current
    case ' health:--procfs-root'
      __fish_complete_path $current
    case ' health:--host-root'
      __fish_complete_path $current
    case ' health:--nvml-library'
      __fish_complete_path $current
    case ' health:--node-name'
      true
    case ' health:--kubeconfig'
      __fish_complete_path $current
    case ' health:--pod-resources-socket'
      __fish_complete_path $current
    case ' health:--kubelet-url'
      true
    case ' health:--kubelet-ca-file'
      __fish_complete_path $current
    case ' audit:--only'
      true
    case ' audit:--checks-file'
      __fish_complete_path $current
    case ' audit:--pod'
      true
    case ' audit:--manifest'
      __fish_complete_path $current
    case ' audit:-o' ' audit:--output'
      printf '%s\n' table short json yaml
    case ' audit:--snapshot'
      __fish_complete_path $current
    case ' audit:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' audit:--topo-m'
      __fish_complete_path $current
    case ' audit:--nccl-xml'
      __fish_complete_path $current
    case ' audit:--sysfs-root'
      __fish_complete_path $current
    case ' audit:--procfs-root'
      __fish_complete_path $current
    case ' audit:--host-root'
      __fish_complete_path $current
    case ' audit:--nvml-library'
      __fish_complete_path $current
    case ' audit:--node-name'
      true
    case ' audit:--kubeconfig'
      __fish_complete_path $current
    case ' audit:--pod-resources-socket'
      __fish_complete_path $current
    case ' audit:--kubelet-url'
      true
    case ' audit:--kubelet-ca-file'
      __fish_complete_path $current
    case ' admit:--manifest'
      __fish_complete_path $current
    case ' admit:--policy'
      printf '%s\n' none best-effort restricted single-numa-node
    case ' admit:--scope'
      printf '%s\n' container pod
    case ' admit:--policy-option'
      true
    case ' admit:-o' ' admit:--output'
      printf '%s\n' table short json yaml
    case ' admit:--snapshot'
      __fish_complete_path $current
    case ' admit:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' admit:--topo-m'
      __fish_complete_path $current
    case ' admit:--nccl-xml'
      __fish_complete_path $current
    case ' admit:--sysfs-root'
      __fish_complete_path $current
    case ' admit:--procfs-root'
      __fish_complete_path $current
    case ' admit:--host-root'
      __fish_complete_path $current
    case ' admit:--nvml-library'
      __fish_complete_path $current
    case ' admit:--node-name'
      true
    case ' admit:--kubeconfig'
      __fish_complete_path $current
    case ' admit:--pod-resources-socket'
      __fish_complete_path $current
    case ' admit:--kubelet-url'
      true
    case ' admit:--kubelet-ca-file'
      __fish_complete_path $current
    case ' export:--for'
      printf '%s\n' kai kueue volcano kubernetes grove lws runai slurm topograph dra
    case ' export:-o' ' export:--output'
      printf '%s\n' yaml json
    case ' export:--nodes'
      __fish_complete_path $current
    case ' export:--kubeconfig'
      __fish_complete_path $current
    case ' export:--cluster'
      printf '%s\n' nvl72 nvl72-two-racks hgx-rails
    case ' export:--selector'
      true
    case ' export:--levels'
      true
    case ' export:--name'
      true
    case ' export:--form'
      true
    case ' export:--size'
      true
    case ' export:--in-namespace'
      true
    case ' export:--cluster-id'
      true
    case ' export:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' export:--snapshot'
      __fish_complete_path $current
    case ' export:--slices'
      __fish_complete_path $current
    case ' export:--sizes'
      true
    case ' export:--driver'
      true
    case ' export:--device-class'
      true
    case ' export:--with-nics'
      true
    case ' export:--with-cpus'
      true
    case ' export:--cpus'
      true
    case ' export:--label-prefix'
      true
    case ' doctor:--only'
      true
    case ' doctor:--levels'
      true
    case ' doctor:--group'
      true
    case ' doctor:--objects'
      __fish_complete_path $current
    case ' doctor:--node-snapshot'
      __fish_complete_path $current
    case ' doctor:-o' ' doctor:--output'
      printf '%s\n' table short json yaml
    case ' doctor:--nodes'
      __fish_complete_path $current
    case ' doctor:--kubeconfig'
      __fish_complete_path $current
    case ' doctor:--cluster'
      printf '%s\n' nvl72 nvl72-two-racks hgx-rails
    case ' doctor:--selector'
      true
    case ' doctor:--label-prefix'
      true
    case ' doctor:--sysfs-root'
      __fish_complete_path $current
    case ' doctor:--procfs-root'
      __fish_complete_path $current
    case ' doctor:--host-root'
      __fish_complete_path $current
    case ' doctor:--nvml-library'
      __fish_complete_path $current
    case ' doctor:--node-name'
      true
    case ' doctor:--pod-resources-socket'
      __fish_complete_path $current
    case ' doctor:--kubelet-url'
      true
    case ' doctor:--kubelet-ca-file'
      __fish_complete_path $current
    case ' migrate:--as'
      printf '%s\n' plugin-config plugin-values operator-values nfd-values nfd-worker rdma-config
    case ' migrate:--write'
      __fish_complete_path $current
    case ' migrate:--deploy'
      __fish_complete_path $current
    case ' migrate:-o' ' migrate:--output'
      printf '%s\n' table short json yaml config
    case ' allocate:--size'
      true
    case ' allocate:--available'
      true
    case ' allocate:--required'
      true
    case ' allocate:--degraded'
      true
    case ' allocate:--why-not'
      true
    case ' allocate:--policy'
      printf '%s\n' best numa-first packed distributed nic-required nvidia
    case ' allocate:--bandwidth-model'
      printf '%s\n' ring relay table
    case ' allocate:--bandwidth-table'
      __fish_complete_path $current
    case ' allocate:--replicas'
      true
    case ' allocate:--mig'
      true
    case ' allocate:-o' ' allocate:--output'
      printf '%s\n' table short json yaml
    case ' allocate:--snapshot'
      __fish_complete_path $current
    case ' allocate:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' allocate:--topo-m'
      __fish_complete_path $current
    case ' allocate:--nccl-xml'
      __fish_complete_path $current
    case ' allocate:--sysfs-root'
      __fish_complete_path $current
    case ' allocate:--procfs-root'
      __fish_complete_path $current
    case ' allocate:--host-root'
      __fish_complete_path $current
    case ' allocate:--nvml-library'
      __fish_complete_path $current
    case ' allocate:--node-name'
      true
    case ' allocate:--kubeconfig'
      __fish_complete_path $current
    case ' allocate:--pod-resources-socket'
      __fish_complete_path $current
    case ' allocate:--kubelet-url'
      true
    case ' allocate:--kubelet-ca-file'
      __fish_complete_path $current
    case ' capture:-o' ' capture:--output'
      __fish_complete_path $current
    case ' capture:--snapshot'
      __fish_complete_path $current
    case ' capture:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' capture:--topo-m'
      __fish_complete_path $current
    case ' capture:--nccl-xml'
      __fish_complete_path $current
    case ' capture:--sysfs-root'
      __fish_complete_path $current
    case ' capture:--procfs-root'
      __fish_complete_path $current
    case ' capture:--host-root'
      __fish_complete_path $current
    case ' capture:--nvml-library'
      __fish_complete_path $current
    case ' capture:--node-name'
      true
    case ' capture:--kubeconfig'
      __fish_complete_path $current
    case ' capture:--pod-resources-socket'
      __fish_complete_path $current
    case ' capture:--kubelet-url'
      true
    case ' capture:--kubelet-ca-file'
      __fish_complete_path $current
    case ' support:-o' ' support:--output'
      __fish_complete_path $current
    case ' support:--log'
      __fish_complete_path $current
    case ' support:--health-file'
      __fish_complete_path $current
    case ' support:--metrics-address'
      true
    case ' support:--snapshot'
      __fish_complete_path $current
    case ' support:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' support:--topo-m'
      __fish_complete_path $current
    case ' support:--nccl-xml'
      __fish_complete_path $current
    case ' support:--sysfs-root'
      __fish_complete_path $current
    case ' support:--procfs-root'
      __fish_complete_path $current
    case ' support:--host-root'
      __fish_complete_path $current
    case ' support:--nvml-library'
      __fish_complete_path $current
    case ' support:--node-name'
      true
    case ' support:--kubeconfig'
      __fish_complete_path $current
    case ' support:--pod-resources-socket'
      __fish_complete_path $current
    case ' support:--kubelet-url'
      true
    case ' support:--kubelet-ca-file'
      __fish_complete_path $current
    case ' nccl env:--gpus'
      true
    case ' nccl env:--hcas'
      true
    case ' nccl env:--nccl-version'
      true
    case ' nccl env:--only'
      true
    case ' nccl env:--topo-file'
      __fish_complete_path $current
    case ' nccl env:-o' ' nccl env:--output'
      printf '%s\n' table short json yaml conf pod
    case ' nccl env:--snapshot'
      __fish_complete_path $current
    case ' nccl env:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' nccl env:--topo-m'
      __fish_complete_path $current
    case ' nccl env:--nccl-xml'
      __fish_complete_path $current
    case ' nccl env:--sysfs-root'
      __fish_complete_path $current
    case ' nccl env:--procfs-root'
      __fish_complete_path $current
    case ' nccl env:--host-root'
      __fish_complete_path $current
    case ' nccl env:--nvml-library'
      __fish_complete_path $current
    case ' nccl env:--node-name'
      true
    case ' nccl env:--kubeconfig'
      __fish_complete_path $current
    case ' nccl env:--pod-resources-socket'
      __fish_complete_path $current
    case ' nccl env:--kubelet-url'
      true
    case ' nccl env:--kubelet-ca-file'
      __fish_complete_path $current
    case ' nccl xml:--like'
      true
    case ' nccl xml:-o' ' nccl xml:--output'
      printf '%s\n' table short json yaml
    case ' nccl xml:--snapshot'
      __fish_complete_path $current
    case ' nccl xml:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' nccl xml:--topo-m'
      __fish_complete_path $current
    case ' nccl xml:--nccl-xml'
      __fish_complete_path $current
    case ' nccl xml:--sysfs-root'
      __fish_complete_path $current
    case ' nccl xml:--procfs-root'
      __fish_complete_path $current
    case ' nccl xml:--host-root'
      __fish_complete_path $current
    case ' nccl xml:--nvml-library'
      __fish_complete_path $current
    case ' nccl xml:--node-name'
      true
    case ' nccl xml:--kubeconfig'
      __fish_complete_path $current
    case ' nccl xml:--pod-resources-socket'
      __fish_complete_path $current
    case ' nccl xml:--kubelet-url'
      true
    case ' nccl xml:--kubelet-ca-file'
      __fish_complete_path $current
    case ' nccl check:--gpus'
      true
    case ' nccl check:--hca'
      true
    case ' nccl check:--bandwidth-table'
      __fish_complete_path $current
    case ' nccl check:--save'
      __fish_complete_path $current
    case ' nccl check:--checks-file'
      __fish_complete_path $current
    case ' nccl check:-o' ' nccl check:--output'
      printf '%s\n' table short json yaml
    case ' nccl check:--snapshot'
      __fish_complete_path $current
    case ' nccl check:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' nccl check:--topo-m'
      __fish_complete_path $current
    case ' nccl check:--nccl-xml'
      __fish_complete_path $current
    case ' nccl check:--sysfs-root'
      __fish_complete_path $current
    case ' nccl check:--procfs-root'
      __fish_complete_path $current
    case ' nccl check:--host-root'
      __fish_complete_path $current
    case ' nccl check:--nvml-library'
      __fish_complete_path $current
    case ' nccl check:--node-name'
      true
    case ' nccl check:--kubeconfig'
      __fish_complete_path $current
    case ' nccl check:--pod-resources-socket'
      __fish_complete_path $current
    case ' nccl check:--kubelet-url'
      true
    case ' nccl check:--kubelet-ca-file'
      __fish_complete_path $current
    case ' explain:-o' ' explain:--output'
      printf '%s\n' table short json yaml
    case ' explain-claim:--kubeconfig'
      __fish_complete_path $current
    case ' explain-claim:--cluster'
      printf '%s\n' nvl72 nvl72-two-racks hgx-rails
    case ' explain-claim:--claim'
      __fish_complete_path $current
    case ' explain-claim:--slices'
      __fish_complete_path $current
    case ' explain-claim:--claims'
      __fish_complete_path $current
    case ' explain-claim:--snapshot'
      __fish_complete_path $current
    case ' explain-claim:--machine'
      printf '%s\n' a100-pcie-4 ac922 dgx-1v dgx-2 dgx-a100 dgx-h100 gb200-nvl72 h100-vm-1 h100-vm-8 h200-nvl-4 h200-vm-1 hgx-a100-4 hgx-b200 hgx-h100-mig hgx-h200 l40s-pcie-4 rtxpro6000-pcie-8
    case ' explain-claim:-o' ' explain-claim:--output'
      printf '%s\n' table short json yaml
    case ' simulate machines:-o' ' simulate machines:--output'
      printf '%s\n' table short json yaml
    case ' simulate clusters:-o' ' simulate clusters:--output'
      printf '%s\n' table short json yaml
    case ' version:-o' ' version:--output'
      printf '%s\n' table short json yaml
    case '*'
      switch "$path"
        case ''
          printf '%s\n' run topo labels publish cleanup health audit admit export doctor migrate allocate capture support nccl explain explain-claim simulate completion version -h --help --version
        case ' run'
          printf '%s\n' -h --help --config --config-file --print-config --node-name --machine --snapshot --or-simulate --no-or-simulate --once --no-once --sysfs-root --procfs-root --host-root --nvml-library --scan-interval --metrics-address --status-page --no-status-page --status-page-everywhere --no-status-page-everywhere --status-page-pods --no-status-page-pods --log-format --log-level --kubeconfig --publish-labels --no-publish-labels --publish-events --no-publish-events --publish-zones --no-publish-zones --annotate-pods --no-annotate-pods --config-dir --config-label --default-config --config-fallbacks --label-outputs --nfd-file --namespace --pod-name --label-prefix --publish-gfd-labels --no-publish-gfd-labels --publish-clique --topology-levels --topology-levels-file --registration --device-plugin-dir --plugins-registry-dir --pod-resources-socket --resource-name --offer-gpus --dra --no-dra --dra-unhealthy --dra-devices --dra-set-sizes --dra-admin-devices --no-dra-admin-devices --mig-strategy --time-slicing --exclude-gpus --numa-mode --placement-policy --bandwidth-model --bandwidth-table --pod-policies --no-pod-policies --tell-pods --no-tell-pods --device-list-strategy --driver-root --dev-root --cdi-kind --cdi-annotation-prefix --cdi-spec --cdi-spec-dir --cdi-hook --cdi-disable-hooks --imex-channels --imex-required --gdrcopy --no-gdrcopy --gds --no-gds --mofed --no-mofed --nccl-hints --no-nccl-hints --nccl-hints-dir --rdma-config --rdma-mode --rdma-issm --no-rdma-issm --rdma-hand-over --rdma-cdi-kind --job-variables --gpu-hca-resource --health-checks --no-health-checks --xid-classes --recovery --expect-gpus --gpu-count-file --health-file --kernel-log --checks-file --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls --audit-node --no-audit-node --measure-pods --no-measure-pods --publish-pod-events --no-publish-pod-events --explain-rejections --no-explain-rejections --help-all --fail-on-init-error --nvidia-driver-root --nvidia-dev-root --pass-device-specs --device-id-strategy --gdrcopy-enabled --gds-enabled --mofed-enabled --nvidia-cdi-hook-path --nvidia-ctk-path --driver-root-ctr-path --container-driver-root --mps-root --device-discovery-strategy --shared-devices-allocation-policy --imex-channel-ids --kubelet-socket --cdi-feature-flags --use-node-feature-api --oneshot --no-timestamp --sleep-interval --output-file --machine-type-file
        case ' topo'
          printf '%s\n' matrix tree path complexes -h --help
        case ' topo matrix'
          printf '%s\n' -h --help --wide --nccl -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' topo tree'
          printf '%s\n' -h --help -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' topo path'
          printf '%s\n' -h --help --bandwidth-table -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' topo complexes'
          printf '%s\n' -h --help --virt --no-virt -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' labels'
          printf '%s\n' -h --help -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls --label-prefix --mig-strategy --time-slicing --topology-levels-file
        case ' publish'
          printf '%s\n' -h --help --dry-run -o --output --strict --no-color --label-outputs --nfd-file --namespace --label-prefix --mig-strategy --time-slicing --topology-levels-file --publish-clique --topology-levels --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' cleanup'
          printf '%s\n' -h --help --dry-run --all-nodes -o --output --strict --no-color --label-outputs --nfd-file --namespace --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' health'
          printf '%s\n' -h --help --all --only --clear --dry-run --yes --checks-file --health-file --device-plugin-dir -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' audit'
          printf '%s\n' -h --help --all --only --checks-file --pod --manifest -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' admit'
          printf '%s\n' -h --help --manifest --policy --scope --policy-option -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' export'
          printf '%s\n' -h --help --for -o --output --strict --no-color --nodes --kubeconfig --cluster --selector --levels --name --form --size --in-namespace --cluster-id --machine --snapshot --slices --sizes --driver --device-class --with-nics --with-cpus --cpus --label-prefix
        case ' doctor'
          printf '%s\n' -h --help --all --only --levels --group --objects --node-snapshot --live -o --output --strict --no-color --nodes --kubeconfig --cluster --selector --label-prefix --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' migrate'
          printf '%s\n' -h --help --check --as --write --deploy -o --output --strict --no-color
        case ' allocate'
          printf '%s\n' -h --help --size --available --required --degraded --why-not --policy --bandwidth-model --bandwidth-table --replicas --mig --explain -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' capture'
          printf '%s\n' -h --help -o --output --raw --scrub --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' support'
          printf '%s\n' -h --help -o --output --log --health-file --metrics-address --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' nccl'
          printf '%s\n' env xml check -h --help
        case ' nccl env'
          printf '%s\n' -h --help --gpus --hcas --nccl-version --only --topo-file --rails -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' nccl xml'
          printf '%s\n' -h --help --like -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' nccl check'
          printf '%s\n' -h --help --gpus --hca --bandwidth-table --save --checks-file -o --output --strict --no-color --snapshot --machine --topo-m --nccl-xml --help-all --sysfs-root --procfs-root --host-root --nvml-library --node-name --kubeconfig --pod-resources-socket --kubelet-url --kubelet-ca-file --kubelet-insecure-tls --no-kubelet-insecure-tls
        case ' explain'
          printf '%s\n' -h --help GPU-001 GPU-002 GPU-003 GPU-004 GPU-005 GPU-006 GPU-007 MIG-001 MIG-002 MIG-003 MIG-004 MIG-005 NVL-001 NVL-002 NVL-003 NVL-004 NVL-005 NVL-006 NVL-007 PCI-001 PCI-002 PCI-003 PCI-004 PCI-005 PCI-006 PCI-007 PCI-010 PCI-008 PCI-009 NUM-001 NUM-002 NUM-003 NUM-004 RDM-001 RDM-002 RDM-003 RDM-004 RDM-005 RDM-006 RDM-007 RDM-008 RDM-009 RDM-010 RDM-011 RDM-012 RDM-013 RDM-014 RDM-015 RDM-016 GDR-001 GDR-002 GDR-003 GDR-004 GDR-005 KRN-001 KRN-002 KRN-003 KRN-004 KRN-005 KRN-006 KRN-007 KRN-008 KRN-009 KRN-010 KRN-011 RUN-001 RUN-002 RUN-003 RUN-004 RUN-005 RUN-006 RUN-007 RUN-008 RUN-009 RUN-010 RUN-011 RUN-012 KUB-001 KUB-002 KUB-003 KUB-004 KUB-005 KUB-006 KUB-007 KUB-008 KUB-009 KUB-010 KUB-011 KUB-012 KUB-013 KUB-014 KUB-015 KUB-016 KUB-017 KUB-018 KUB-019 KUB-020 KUB-021 KUB-022 KUB-023 KUB-024 KUB-025 KUB-026 KUB-027 KUB-028 KUB-029 KUB-030 KUB-031 KUB-032 PLG-001 PLG-002 PLG-003 PLG-004 PLG-005 PLG-006 PLG-012 PLG-013 PLG-007 PLG-008 PLG-009 PLG-010 PLG-011 QOS-001 QOS-002 QOS-003 QOS-004 QOS-005 QOS-006 POD-001 POD-002 POD-003 POD-004 POD-005 POD-006 POD-007 POD-008 POD-009 POD-010 POD-011 POD-012 POD-013 ALN-001 ALN-002 ALN-003 ALN-004 ALN-005 ALN-006 CLU-001 CLU-002 CLU-003 CLU-004 CLU-005 CLU-006 CLU-007 CLU-008 CLU-009 CLU-010 CLU-011 CLU-012 CLU-013 XID-8 XID-11 XID-25 XID-32 XID-13 XID-14 XID-31 XID-37 XID-38 XID-39 XID-40 XID-41 XID-70 XID-71 XID-72 XID-75 XID-76 XID-77 XID-85 XID-126 XID-127 XID-128 XID-129 XID-130 XID-131 XID-132 XID-133 XID-134 XID-135 XID-43 XID-44 XID-45 XID-46 XID-48 XID-54 XID-60 XID-62 XID-63 XID-64 XID-66 XID-67 XID-68 XID-83 XID-84 XID-88 XID-89 XID-96 XID-97 XID-98 XID-69 XID-74 XID-78 XID-79 XID-80 XID-82 XID-99 XID-100 XID-101 XID-102 XID-103 XID-104 XID-105 XID-86 XID-139 XID-92 XID-93 XID-94 XID-95 XID-106 XID-107 XID-108 XID-109 XID-110 XID-119 XID-120 XID-121 XID-136 XID-137 XID-140 XID-141 XID-142 XID-143 XID-144 XID-145 XID-146 XID-147 XID-148 XID-149 XID-150 XID-151 XID-152 XID-153 XID-154 XID-155 XID-156 XID-157 XID-158 XID-159 XID-160 XID-161 XID-162 XID-163 XID-164 XID-165 XID-166 XID-170 XID-167 XID-168 XID-169 XID-171 XID-172 TopologyAffinityError UnexpectedAdmissionError SMTAlignmentError OutOfcpu OutOfmemory OutOfpods NodeAffinity GpuUnhealthy GpuLost GpuMissing GpuNeedsRepair GpuDegraded GpuRowRemapFailed GpuRowRemapPending GpuSramThresholdExceeded GpuUncontainedMemoryError GpuMemoryErrors GpuXidBurst GpuFlapping GpuPcieWidthReduced GpuNvLinkDown GpuFabricNotReady HcaPortDown HcaUnhealthy HcaLinkFlapping GpuPlacementUndone GpuHardwareCheckFails GpuPodsMisaligned GpuPodsNotMeasured GpuPodsRejected GpuPlacementLate GpuAllocationSlow NodetopoDown NodetopoAbsent NodetopoMissing NodetopoRestarting NodetopoNotReady NodetopoDriverPaused GpuResourceNotRegistered GpuResourceConflict NvmlStuck NodeScanStale NodetopoConfigRefused GpuLabelsNotPublished GpuLabelsRefused NodeZonesNotPublished GpuFleetDegraded GpuRecovered HcaFlapping HcaRecovered GpuXid NvmlUnresponsive NvmlRefuses NvmlDied NvmlLibraryGone NvmlVersionMismatch NvmlAnswers FreshContainerWanted HealthCleared HealthForgotten HealthFileDamaged StateFileUnusable ResourceConflict ResourceConflictOver NotListed ListedAgain AnotherInstance OnlyInstance DriverPaused DriverResumed DriverPausedLong GpusMissing GpusComplete GpusServedByDra GpusOfferedAgain GpusPublishedTwice GpusPublishedOnce SliceFieldsDropped SliceFieldsKept NoHandOver HandOverChanged CdiNotWritten CdiWritten ConfigChanged ConfigRefused PodMisaligned RejectionExplained PlacementPolicyUnknown PlacementPolicyUnused DevicesPlaced NotScanned NotRegistered NotOffered DraNotServed GpuOffBus GpuUnavailable RowRemapFailed RowRemapPending PageRetirementPending SramThresholdExceeded NvLinksDown PcieLanesMissing Flapping HealthNotKnown UnknownRecoveryRequired XidOther ResetRequired RebootRequired DrainPeersRequired DrainAndResetRequired ImexRecoveryRequired BusResetRequired HcaLinkDown HcaFirmwareError HcaLost HcaUnbound HcaGone HcaMoved HcaMissing aligned misaligned shared-cpus by-claim device-without-node packed fragmented unexplained unknown-policy nodetopo.io/unhealthy nodetopo.io/held nodetopo.io/published-twice auto cdi-cri cdi-annotations envvar device-specs volume-mounts gpu.topology/cpu-manager gpu.topology/data-direct gpu.topology/gdr gpu.topology/gpu-nic gpu.topology/gpu-numa-nodes gpu.topology/gpus-per-numa gpu.topology/interconnect gpu.topology/memory-manager gpu.topology/mig-enabled gpu.topology/numa-nodes gpu.topology/nvlink-domain gpu.topology/nvlink-domain-size gpu.topology/nvlink-gpus gpu.topology/nvlink-islands gpu.topology/nvlink-links gpu.topology/nvlink-partition gpu.topology/nvlink-version gpu.topology/rdma gpu.topology/rdma-netns gpu.topology/rdma-nics gpu.topology/rdma-nics-per-numa gpu.topology/rdma-rails gpu.topology/rdma-rate gpu.topology/shape gpu.topology/tm-policy gpu.topology/tm-scope gpu.topology/topology-ok nvidia.com/cuda.driver-version.full nvidia.com/cuda.driver-version.major nvidia.com/cuda.driver-version.minor nvidia.com/cuda.driver-version.revision nvidia.com/cuda.driver.major nvidia.com/cuda.driver.minor nvidia.com/cuda.driver.rev nvidia.com/cuda.runtime-version.full nvidia.com/cuda.runtime-version.major nvidia.com/cuda.runtime-version.minor nvidia.com/cuda.runtime.major nvidia.com/cuda.runtime.minor nvidia.com/gpu.clique nvidia.com/gpu.compute.major nvidia.com/gpu.compute.minor nvidia.com/gpu.count nvidia.com/gpu.engines.copy nvidia.com/gpu.engines.decoder nvidia.com/gpu.engines.encoder nvidia.com/gpu.engines.jpeg nvidia.com/gpu.engines.ofa nvidia.com/gpu.family nvidia.com/gpu.machine nvidia.com/gpu.memory nvidia.com/gpu.mode nvidia.com/gpu.multiprocessors nvidia.com/gpu.product nvidia.com/gpu.replicas nvidia.com/gpu.sharing-strategy nvidia.com/gpu.slices.ci nvidia.com/gpu.slices.gi nvidia.com/mig.capable nvidia.com/mig.strategy nvidia.com/mps.capable nvidia.com/nvlink.version nvidia.com/nvswitch.present nvidia.com/vgpu.host-driver-branch nvidia.com/vgpu.host-driver-version nvidia.com/vgpu.present node-name machine snapshot or-simulate once sysfs-root procfs-root host-root nvml-library scan-interval metrics-address status-page status-page-everywhere status-page-pods log-format log-level kubeconfig publish-labels publish-events publish-zones annotate-pods config-dir config-label default-config config-fallbacks label-outputs nfd-file namespace pod-name label-prefix publish-gfd-labels publish-clique topology-levels topology-levels-file registration device-plugin-dir plugins-registry-dir pod-resources-socket resource-name offer-gpus dra dra-unhealthy dra-devices dra-set-sizes dra-admin-devices mig-strategy time-slicing exclude-gpus numa-mode placement-policy bandwidth-model bandwidth-table pod-policies tell-pods device-list-strategy driver-root dev-root cdi-kind cdi-annotation-prefix cdi-spec cdi-spec-dir cdi-hook cdi-disable-hooks imex-channels imex-required gdrcopy gds mofed nccl-hints nccl-hints-dir rdma-config rdma-mode rdma-issm rdma-hand-over rdma-cdi-kind job-variables gpu-hca-resource health-checks xid-classes recovery expect-gpus gpu-count-file health-file kernel-log checks-file kubelet-url kubelet-ca-file kubelet-insecure-tls audit-node measure-pods publish-pod-events explain-rejections MIG_STRATEGY fail-on-init-error nvidia-driver-root nvidia-dev-root pass-device-specs DEVICE_LIST_STRATEGY device-id-strategy gdrcopy-enabled gds-enabled mofed-enabled CDI_ANNOTATION_PREFIX nvidia-cdi-hook-path driver-root-ctr-path mps-root device-discovery-strategy shared-devices-allocation-policy imex-channel-ids IMEX_REQUIRED kubelet-socket cdi-feature-flags CDI_DISABLE_HOOKS DP_DISABLE_HEALTHCHECKS DP_ENABLE_HEALTHCHECKS CONFIG_FILE_SRCDIR NODE_LABEL DEFAULT_CONFIG FALLBACK_STRATEGIES use-node-feature-api oneshot no-timestamp sleep-interval output-file machine-type-file resources.gpus resources.mig sharing.timeSlicing sharing.mps nodetopo_build_info nodetopo_ready nodetopo_snapshot_generation nodetopo_last_scan_timestamp_seconds nodetopo_gpus_missing nodetopo_probe_issues nodetopo_nvml_failures_in_a_row nodetopo_driver_paused nodetopo_checks nodetopo_check_broken nodetopo_label_writes_total nodetopo_label_errors_total nodetopo_labels_refused nodetopo_zone_writes_total nodetopo_zone_errors_total nodetopo_kubernetes_events_total nodetopo_config_info nodetopo_config_reload_failures_total nodetopo_log_lines_dropped_total nodetopo_http_connections nodetopo_http_connections_refused_total nodetopo_registered nodetopo_registrations_total nodetopo_hand_over_info nodetopo_resource_conflict nodetopo_devices nodetopo_allocations_total nodetopo_requester_lookups_total nodetopo_preferred_allocations_unchosen_total nodetopo_dra_gpus nodetopo_dra_registered nodetopo_dra_claims_prepared nodetopo_dra_gpus_claimed nodetopo_dra_slice_writes_total nodetopo_dra_slice_errors_total nodetopo_dra_gpus_published_twice nodetopo_dra_fields_dropped nodetopo_node_info nodetopo_gpus nodetopo_hca_ports nodetopo_hca_ports_active nodetopo_hca_port_state nodetopo_hca_port_rate_bytes_per_second nodetopo_hca_port_errors_total nodetopo_hca_healthy nodetopo_hca_health_info nodetopo_gpu_info nodetopo_gpu_lost nodetopo_gpu_recovery_action nodetopo_gpu_row_remap_failed nodetopo_gpu_row_remap_pending nodetopo_gpu_uncorrectable_memory_errors_total nodetopo_gpu_sram_threshold_exceeded nodetopo_gpu_pcie_link_width nodetopo_gpu_pcie_link_width_max nodetopo_gpu_nvlinks_active nodetopo_gpu_fabric_registered nodetopo_gpu_mig_devices nodetopo_gpu_healthy nodetopo_gpu_degraded nodetopo_gpu_health_info nodetopo_xid_events_total nodetopo_pods_measured nodetopo_pods_misaligned nodetopo_pod_measurement_errors_total nodetopo_rejections_total --all -o --output --strict --no-color
        case ' explain-claim'
          printf '%s\n' -h --help --kubeconfig --cluster --claim --slices --claims --snapshot --machine -o --output --strict --no-color
        case ' simulate'
          printf '%s\n' machines clusters -h --help
        case ' simulate machines'
          printf '%s\n' -h --help -o --output --strict --no-color
        case ' simulate clusters'
          printf '%s\n' -h --help -o --output --strict --no-color
        case ' completion'
          printf '%s\n' -h --help bash zsh fish
        case ' version'
          printf '%s\n' -h --help -o --output --strict --no-color
      end
  end
end
complete -c nodetopo -f -a '(__nodetopo_complete)'
