{{/*
What a rendering refuses, all of it at once: combinations that Kubernetes accepts and that the
gateway, or a reader of the manifests, finds out too late. What the gateway itself says about its
configuration at the start is left to it, but for what it requires.
*/}}
{{- define "aepb-gateway.checks" -}}
{{- $wrong := concat
  (include "aepb-gateway.checks.required" . | fromJsonArray)
  (include "aepb-gateway.checks.replicas" . | fromJsonArray)
  (include "aepb-gateway.checks.listeners" . | fromJsonArray)
  (include "aepb-gateway.checks.files" . | fromJsonArray)
  (include "aepb-gateway.checks.sizes" . | fromJsonArray) -}}
{{- if $wrong -}}
{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}

{{- define "aepb-gateway.checks.required" -}}
{{- $config := .Values.config -}}
{{- $identity := $config.identity | default dict -}}
{{- $wrong := list -}}
{{- if not $config.public_url -}}
{{- $wrong = append $wrong "config.public_url: missing: set the URL where callers reach the gateway, such as https://gw.example.com" -}}
{{- end -}}
{{- if not ($config.admin | default dict).operators -}}
{{- $wrong = append $wrong "config.admin.operators: missing: name at least one operator, with id and roles" -}}
{{- end -}}
{{- if not $identity.trust_domain -}}
{{- $wrong = append $wrong "config.identity.trust_domain: missing: set the SPIFFE trust domain of the gateway, such as example.com" -}}
{{- end -}}
{{- if and (not $identity.workload_api) (not (and $identity.certificate $identity.key $identity.bundle)) -}}
{{- $wrong = append $wrong "config.identity: no identity: set identity.secret and the files config.identity.certificate, key and bundle below /run/svid, or spire.enabled: true and config.identity.workload_api: unix:///spiffe-workload-api/spire-agent.sock" -}}
{{- end -}}
{{- if kindIs "bool" (get ($config.policy | default dict) "graph") -}}
{{- $wrong = append $wrong "config.policy.graph: true or false, expected off, warn or refuse: write \"off\" in quotation marks, because YAML reads the bare word as false" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{- define "aepb-gateway.checks.replicas" -}}
{{- $state := include "aepb-gateway.state" . | fromJson -}}
{{- $most := include "aepb-gateway.mostReplicas" . | int -}}
{{- $key := .Values.autoscaling.enabled | ternary "autoscaling.maxReplicas" "replicas" -}}
{{- $wrong := list -}}
{{- if not $state.redis -}}
{{- if .Values.autoscaling.enabled -}}
{{- $wrong = append $wrong "autoscaling.enabled: replicas must share their state: set config.state.redis and config.state.key, or autoscaling.enabled: false" -}}
{{- else if gt $most 1 -}}
{{- $wrong = append $wrong (printf "replicas: %d replicas must share their state: set config.state.redis and config.state.key, or replicas: 1" $most) -}}
{{- end -}}
{{- else -}}
{{- if $state.path -}}
{{- $wrong = append $wrong "config.state.path: state is kept in a file or in Redis, not both: remove config.state.path or config.state.redis" -}}
{{- end -}}
{{- if not (or $state.key $state.unverified) -}}
{{- $wrong = append $wrong "config.state.key: missing, and required with config.state.redis: mount a secret that has the key (openssl rand -hex 32) and name its file, or set config.state.unverified: true to believe every program that can write to this Redis" -}}
{{- end -}}
{{- if gt $most (int $state.maxReplicas) -}}
{{- $wrong = append $wrong (printf "%s: %d is more than config.state.redis.max_replicas (%d), by which the replicas divide the limits: raise that, or lower %s" $key $most (int $state.maxReplicas) $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) $most) -}}
{{- $wrong = append $wrong (printf "autoscaling.minReplicas: %d is more than autoscaling.maxReplicas (%d): lower it" (int .Values.autoscaling.minReplicas) $most) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not (.Values.resources.requests | default dict).cpu) -}}
{{- $wrong = append $wrong "resources.requests.cpu: missing, and autoscaling.cpuUtilization is a percentage of it: set it, such as 500m" -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (lt (include "aepb-gateway.leastReplicas" . | int) 2) -}}
{{- $wrong = append $wrong (printf "podDisruptionBudget.enabled: a budget protects nothing with one replica: set %s: 2 or more, or podDisruptionBudget.enabled: false" (.Values.autoscaling.enabled | ternary "autoscaling.minReplicas" "replicas")) -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{- define "aepb-gateway.checks.listeners" -}}
{{- $listeners := include "aepb-gateway.listeners" . | fromJson -}}
{{- $wrong := list -}}
{{- range $name, $listener := $listeners -}}
{{- if not (int $listener.port) -}}
{{- $wrong = append $wrong (printf "config.listen.%s: %q has no port that a Service can name: set an address such as :8443" $name $listener.address) -}}
{{- else if and $listener.loopback (has $name (list "public" "grpc" "uacp")) -}}
{{- $wrong = append $wrong (printf "config.listen.%s: %s is a loopback address, which the Service does not reach: set :%d" $name $listener.address (int $listener.port)) -}}
{{- end -}}
{{- end -}}
{{- $metrics := $listeners.metrics -}}
{{- range $key, $wanted := dict "probes.enabled" .Values.probes.enabled "serviceMonitor.enabled" .Values.serviceMonitor.enabled -}}
{{- if and $wanted (not $metrics) -}}
{{- $wrong = append $wrong (printf "config.listen.metrics: missing, and needed by %s: set \":9464\", or %s: false" $key $key) -}}
{{- else if and $wanted $metrics.loopback -}}
{{- $wrong = append $wrong (printf "config.listen.metrics: %s is a loopback address, and %s needs one of the pod: set \":9464\", or %s: false" $metrics.address $key $key) -}}
{{- end -}}
{{- end -}}
{{- range $i, $route := .Values.tlsRoutes -}}
{{- if not (get $listeners $route.port) -}}
{{- $wrong = append $wrong (printf "tlsRoutes[%d].port: there is no listener %q: set config.listen.%s, or remove the route" $i $route.port $route.port) -}}
{{- end -}}
{{- if and (not $route.hostnames) (regexMatch "^([0-9.]+|\\[.*\\])$" (include "aepb-gateway.publicHost" $)) -}}
{{- $wrong = append $wrong (printf "tlsRoutes[%d].hostnames: missing, and the host of config.public_url is an address: name a host" $i) -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{- define "aepb-gateway.checks.files" -}}
{{- $state := include "aepb-gateway.state" . | fromJson -}}
{{- $mounts := include "aepb-gateway.mounts" . | fromJsonArray -}}
{{- $wrong := list -}}
{{- $files := include "aepb-gateway.files" . | fromJsonArray -}}
{{- $socket := ((.Values.config.identity | default dict).workload_api | default "") -}}
{{- if hasPrefix "unix:" $socket -}}
{{- $files = append $files (dict "key" "config.identity.workload_api" "path" (regexReplaceAll "^unix:(//)?" $socket "")) -}}
{{- end -}}
{{- range $file := $files -}}
{{- $mounted := false -}}
{{- range $mounts -}}
{{- if or (include "aepb-gateway.below" (dict "path" $file.path "folder" .mountPath)) (eq $file.path .mountPath) -}}{{- $mounted = true -}}{{- end -}}
{{- end -}}
{{- if not $mounted -}}
{{- $remedy := "mount a secret with secrets: [{name: NAME, secret: SECRET}] and name a file below /run/secrets/NAME, or use extraVolumes and extraVolumeMounts" -}}
{{- if eq $file.key "config.identity.workload_api" -}}
{{- $remedy = "set spire.enabled: true and unix:///spiffe-workload-api/spire-agent.sock, or use extraVolumes and extraVolumeMounts" -}}
{{- else if hasPrefix "config.identity." $file.key -}}
{{- $remedy = "set identity.secret and name a file below /run/svid, or use secrets, or extraVolumes and extraVolumeMounts" -}}
{{- end -}}
{{- $wrong = append $wrong (printf "%s: %s is not in a mounted volume: %s" $file.key $file.path $remedy) -}}
{{- end -}}
{{- end -}}
{{- if and $state.path (not (include "aepb-gateway.below" (dict "path" $state.path "folder" .Values.persistence.mountPath))) -}}
{{- $wrong = append $wrong (printf "config.state.path: %s is not below persistence.mountPath (%s): set %s/state.db" $state.path .Values.persistence.mountPath (trimSuffix "/" .Values.persistence.mountPath)) -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{- define "aepb-gateway.checks.sizes" -}}
{{- $wrong := list -}}
{{- $memory := include "aepb-gateway.memory" . | int64 -}}
{{- with (.Values.resources.limits | default dict).memory -}}
{{- if lt (include "aepb-gateway.bytes" (dict "key" "resources.limits.memory" "value" .) | int64) (mul $memory 1048576) -}}
{{- $wrong = append $wrong (printf "resources.limits.memory: %v is too small: config.limits.memory_mib must be at most three quarters of it: set %dMi or more, or lower config.limits.memory_mib" . $memory) -}}
{{- end -}}
{{- end -}}
{{- $stop := include "aepb-gateway.stop" . | fromJson -}}
{{- if lt (int $stop.period) (int $stop.least) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds: %d is too small: preStop, config.shutdown_delay, config.shutdown_grace and 2 seconds need %d: set that or more, or lower them" (int $stop.period) (int $stop.least)) -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}
