{{/* The pod template of both workloads. */}}
{{- define "aepb-gateway.pod" -}}
{{- $listeners := include "aepb-gateway.listeners" . | fromJson -}}
{{- $state := include "aepb-gateway.state" . | fromJson -}}
{{- $stop := include "aepb-gateway.stop" . | fromJson -}}
{{- $memory := (.Values.resources.limits | default dict).memory | default (printf "%sMi" (include "aepb-gateway.memory" .)) -}}
{{- $own := include "aepb-gateway.selector" . | fromYaml -}}
{{- $annotations := merge (dict) .Values.podAnnotations -}}
{{- if .Values.restartOnConfigChange -}}
{{- $_ := set $annotations "checksum/config" (toYaml .Values.config | sha256sum) -}}
{{- end -}}
metadata:
  labels:
    {{- toYaml (merge (dict) $own .Values.podLabels .Values.commonLabels) | nindent 4 }}
  {{- with merge $annotations .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "aepb-gateway.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $stop.period }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $constraints := list }}
  {{- range .Values.topologySpreadConstraints }}
  {{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" (dict "matchLabels" $own)) .)) }}
  {{- end }}
  {{- with $constraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: gateway
      image: {{ include "aepb-gateway.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/aepb/gateway.yaml]
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- range $name, $listener := $listeners }}
        {{- if not $listener.loopback }}
        - name: {{ $name }}
          containerPort: {{ $listener.port }}
        {{- end }}
        {{- end }}
      {{- if .Values.probes.enabled }}
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- end }}
      {{- if $stop.preStop }}
      lifecycle:
        # Before SIGTERM, /readyz still succeeds: the pod leaves the Services. After it the gateway
        # goes on for shutdown_delay with /readyz failing, for load balancers that ask it.
        preStop:
          sleep:
            seconds: {{ $stop.preStop }}
      {{- end }}
      resources:
        requests:
          {{- toYaml (merge (dict) (.Values.resources.requests | default dict) (dict "memory" $memory)) | nindent 10 }}
        limits:
          {{- toYaml (merge (dict) (.Values.resources.limits | default dict) (dict "memory" $memory)) | nindent 10 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        runAsNonRoot: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        # The folder, not the file: a file that is mounted by itself never changes.
        - name: config
          mountPath: /etc/aepb
          readOnly: true
        {{- if $state.path }}
        - name: state
          mountPath: {{ .Values.persistence.mountPath }}
        {{- end }}
        {{- with include "aepb-gateway.mounts" . | fromJsonArray }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "aepb-gateway.fullname" . }}
    {{- with .Values.identity.secret }}
    - name: identity
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- if .Values.spire.enabled }}
    - name: spiffe-workload-api
      csi:
        driver: csi.spiffe.io
        readOnly: true
    {{- end }}
    {{- range .Values.secrets }}
    - name: secret-{{ .name }}
      secret:
        secretName: {{ .secret }}
        defaultMode: 0440
        {{- with .items }}
        items:
          {{- toYaml . | nindent 10 }}
        {{- end }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
