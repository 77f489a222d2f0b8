{{- define "aepb-gateway.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 49 characters: the pods of a StatefulSet, -dashboards and -metrics must fit into 63. */}}
{{- define "aepb-gateway.fullname" -}}
{{- $name := include "aepb-gateway.name" . -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $default | trunc 49 | trimSuffix "-" -}}
{{- end -}}

{{- define "aepb-gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "aepb-gateway.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "aepb-gateway.selector" -}}
app.kubernetes.io/name: {{ include "aepb-gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* metadata of an object. Arguments: root, suffix of the name, labels, annotations. */}}
{{- define "aepb-gateway.metadata" -}}
{{- $own := merge (include "aepb-gateway.selector" .root | fromYaml) (dict "app.kubernetes.io/version" .root.Chart.AppVersion) -}}
{{- $labels := merge $own (.labels | default dict) .root.Values.commonLabels -}}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.commonAnnotations -}}
metadata:
  name: {{ .name | default (printf "%s%s" (include "aepb-gateway.fullname" .root) (.suffix | default "")) }}
  {{- if not .cluster }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- toYaml $labels | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "aepb-gateway.image" -}}
{{- with .Values.image -}}
{{- .registry }}/{{ .repository -}}
{{- with empty .digest | ternary (.tag | default $.Chart.AppVersion) .tag }}:{{ . }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* What the chart reads from config. Those that have more than one answer give JSON. */}}

{{/* Each listener that config asks for, or that is on by default: its address, port, and whether it is on loopback. */}}
{{- define "aepb-gateway.listeners" -}}
{{- $listen := .Values.config.listen | default dict -}}
{{- $out := dict -}}
{{- range $name, $default := dict "public" ":8443" "admin" "127.0.0.1:9443" "grpc" "" "metrics" "" "uacp" "" -}}
{{- $address := get $listen $name | default $default | toString -}}
{{- if $address -}}
{{- $host := regexReplaceAll ":[0-9]+$" $address "" -}}
{{- $_ := set $out $name (dict "address" $address "port" (regexFind "[0-9]+$" $address | int) "loopback" (regexMatch "(?i)^(127[.].*|localhost|\\[::1\\]|\\[::ffff:127[.].*\\])$" $host)) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Milliseconds of a Go duration, rounded up. Arguments: key, value. */}}
{{- define "aepb-gateway.milliseconds" -}}
{{- $text := toString .value -}}
{{- if not (regexMatch "^(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$" $text) -}}
{{- fail (printf "%s: %q is not a duration such as 30s" .key $text) -}}
{{- end -}}
{{- $units := dict "h" 3600000.0 "m" 60000.0 "s" 1000.0 "ms" 1.0 "us" 0.001 "µs" 0.001 "μs" 0.001 "ns" 0.000001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[^0-9.]+" $text -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[^0-9.]+$" .))) -}}
{{- end -}}
{{- $sum | ceil | int64 -}}
{{- end -}}

{{/*
Seconds to stop: preStop, least (what the gateway needs after the request to stop), and period.
Kubernetes sends SIGTERM when preStop is over. After SIGTERM the gateway goes on for shutdown_delay
with /readyz failing, for load balancers that ask it. preStop adds as much before SIGTERM, in which
/readyz still succeeds: the pod leaves the Services meanwhile, and a new connection that comes late
finds a gateway that has all of shutdown_delay left.
*/}}
{{- define "aepb-gateway.stop" -}}
{{- $config := .Values.config -}}
{{- $delay := get $config "shutdown_delay" -}}
{{- if or (kindIs "invalid" $delay) (eq (toString $delay) "") -}}{{- $delay = "5s" -}}{{- end -}}
{{- $delay = include "aepb-gateway.milliseconds" (dict "key" "config.shutdown_delay" "value" $delay) | int64 -}}
{{- $grace := include "aepb-gateway.milliseconds" (dict "key" "config.shutdown_grace" "value" ($config.shutdown_grace | default "20s")) | int64 | default 20000 -}}
{{- $preStop := div (add $delay 999) 1000 -}}
{{- $least := add $preStop (div (add $delay $grace 2000 999) 1000) -}}
{{- toJson (dict "preStop" $preStop "least" $least "period" (.Values.terminationGracePeriodSeconds | default (add $least 5) | int64)) -}}
{{- end -}}

{{/* Bytes of a quantity of Kubernetes such as 1Gi. Arguments: key, value. */}}
{{- define "aepb-gateway.bytes" -}}
{{- $text := kindIs "float64" .value | ternary (int64 .value | toString) (toString .value) -}}
{{- if not (regexMatch "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text) -}}
{{- fail (printf "%s: %q is not a quantity of memory such as 1Gi" .key $text) -}}
{{- end -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text)) | floor | int64 -}}
{{- end -}}

{{/* MiB that a container needs for config.limits.memory_mib, which is three quarters of it. */}}
{{- define "aepb-gateway.memory" -}}
{{- $limits := .Values.config.limits | default dict -}}
{{- div (add (mul ($limits.memory_mib | default 768 | int64) 4) 2) 3 -}}
{{- end -}}

{{/* The largest number of replicas, or the least. */}}
{{- define "aepb-gateway.mostReplicas" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas | int -}}
{{- end -}}
{{- define "aepb-gateway.leastReplicas" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicas | int -}}
{{- end -}}

{{/* config.state: path, redis (whether replicas share one), and how many of them. */}}
{{- define "aepb-gateway.state" -}}
{{- $state := .Values.config.state | default dict -}}
{{- $redis := $state.redis | default dict -}}
{{- $addresses := $redis.addresses | default list -}}
{{- toJson (dict "path" ($state.path | default "") "key" ($state.key | default "") "unverified" ($state.unverified | default false)
  "addresses" $addresses "redis" (gt (len $addresses) 0) "maxReplicas" ($redis.max_replicas | default 3 | int)) -}}
{{- end -}}

{{/* The host of config.public_url, and the port. */}}
{{- define "aepb-gateway.publicHost" -}}
{{- regexReplaceAll ":[0-9]+$" (get (urlParse (.Values.config.public_url | default "")) "host") "" -}}
{{- end -}}
{{- define "aepb-gateway.publicPort" -}}
{{- .Values.service.port | default (regexFind ":[0-9]+$" (get (urlParse (.Values.config.public_url | default "")) "host") | trimPrefix ":") | default 443 | int -}}
{{- end -}}

{{/* The Service port of a public listener. Callers know the grpc port from config.public_grpc. Arguments: root, name. */}}
{{- define "aepb-gateway.servicePort" -}}
{{- $own := (get (include "aepb-gateway.listeners" .root | fromJson) .name).port | int -}}
{{- if eq .name "public" -}}
{{- include "aepb-gateway.publicPort" .root -}}
{{- else if eq .name "grpc" -}}
{{- regexFind "[0-9]+$" (.root.Values.config.public_grpc | default "") | default $own -}}
{{- else -}}
{{- $own -}}
{{- end -}}
{{- end -}}

{{/* Each file that config names outside the state volume: key and path. */}}
{{- define "aepb-gateway.files" -}}
{{- $config := .Values.config -}}
{{- $out := list -}}
{{- $keys := dict
  "identity" (list "certificate" "key" "bundle")
  "tls" (list "certificate" "key")
  "state" (list "key")
  "state.redis" (list "username_file" "password_file" "sentinel_username_file" "sentinel_password_file")
  "state.redis.tls" (list "ca" "certificate" "key")
  "policy" (list "document")
  "api_keys" (list "file")
  "ainp" (list "key") -}}
{{- range $section, $names := $keys -}}
{{- $at := $config -}}
{{- range splitList "." $section -}}{{- $at = get $at . | default dict -}}{{- end -}}
{{- range $name := $names -}}{{- $out = append $out (dict "key" (printf "config.%s.%s" $section $name) "path" (get $at $name)) -}}{{- end -}}
{{- end -}}
{{- $identity := $config.identity | default dict -}}
{{- range $domain, $file := $identity.federated -}}{{- $out = append $out (dict "key" (printf "config.identity.federated.%s" $domain) "path" $file) -}}{{- end -}}
{{- range $domain, $file := $identity.issuers -}}{{- $out = append $out (dict "key" (printf "config.identity.issuers.%s" $domain) "path" $file) -}}{{- end -}}
{{- range $id, $peer := $config.peers -}}{{- $out = append $out (dict "key" (printf "config.peers.%s.keys" $id) "path" (get ($peer | default dict) "keys")) -}}{{- end -}}
{{- range $name, $issuer := $config.oauth -}}{{- $out = append $out (dict "key" (printf "config.oauth.%s.introspection.client_secret_file" $name) "path" (get (($issuer | default dict).introspection | default dict) "client_secret_file")) -}}{{- end -}}
{{- range $i, $node := ($config.slim | default dict).nodes -}}
{{- $jwt := $node.jwt | default dict -}}
{{- $out = concat $out (list
  (dict "key" (printf "config.slim.nodes[%d].shared_secret_file" $i) "path" $node.shared_secret_file)
  (dict "key" (printf "config.slim.nodes[%d].jwt.key" $i) "path" $jwt.key)
  (dict "key" (printf "config.slim.nodes[%d].jwt.keys" $i) "path" $jwt.keys)) -}}
{{- end -}}
{{- range $agent, $settings := $config.agents -}}
{{- range $i, $endpoint := ($settings | default dict).endpoints -}}
{{- range $variable, $file := ($endpoint.program | default dict).env_files -}}{{- $out = append $out (dict "key" (printf "config.agents.%s.endpoints[%d].program.env_files.%s" $agent $i $variable) "path" $file) -}}{{- end -}}
{{- end -}}
{{- $credential := ($settings | default dict).credential | default dict -}}
{{- range $kind, $names := dict "header" (list "value_file") "bearer" (list "token_file") "basic" (list "password_file") "oauth" (list "client_secret_file" "key_file") "certificate" (list "cert_file" "key_file") -}}
{{- range $name := $names -}}{{- $out = append $out (dict "key" (printf "config.agents.%s.credential.%s.%s" $agent $kind $name) "path" (get (get $credential $kind | default dict) $name)) -}}{{- end -}}
{{- end -}}
{{- range $variable, $file := ($credential.bearer | default dict).env_files -}}{{- $out = append $out (dict "key" (printf "config.agents.%s.credential.bearer.env_files.%s" $agent $variable) "path" $file) -}}{{- end -}}
{{- end -}}
{{- $named := list -}}
{{- range $out -}}{{- if .path -}}{{- $named = append $named . -}}{{- end -}}{{- end -}}
{{- toJson $named -}}
{{- end -}}

{{/* Mounts for files that config names. */}}
{{- define "aepb-gateway.mounts" -}}
{{- $out := list -}}
{{- if .Values.identity.secret -}}{{- $out = append $out (dict "name" "identity" "mountPath" "/run/svid" "readOnly" true) -}}{{- end -}}
{{- if .Values.spire.enabled -}}{{- $out = append $out (dict "name" "spiffe-workload-api" "mountPath" "/spiffe-workload-api" "readOnly" true) -}}{{- end -}}
{{- range .Values.secrets -}}{{- $out = append $out (dict "name" (printf "secret-%s" .name) "mountPath" (printf "/run/secrets/%s" .name) "readOnly" true) -}}{{- end -}}
{{- concat $out .Values.extraVolumeMounts | toJson -}}
{{- end -}}

{{/* Reports whether a file is below a folder. Arguments: path, folder. */}}
{{- define "aepb-gateway.below" -}}
{{- if and (hasPrefix (printf "%s/" (trimSuffix "/" .folder)) .path) (eq (clean .path) .path) -}}true{{- end -}}
{{- end -}}
